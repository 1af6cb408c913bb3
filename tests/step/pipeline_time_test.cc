#include "step/pipeline_time.h"

#include <numeric>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;

// Of steps with the same passes.
double InRounds(const StagePasses& passes) { return PipelineMicros(passes, passes); }

TEST(PipelineTimeTest, OneMicroBatchGoesThroughTheStagesOneAfterAnother) {
  EXPECT_DOUBLE_EQ(InRounds({{3}, {5}}), 8);
  EXPECT_DOUBLE_EQ(PipelineMicros({}, {{3}, {5}}), 8);
}

TEST(PipelineTimeTest, AFullPipelineTakesTheSlowestStagesTimeForEveryMicroBatch) {
  // Two stages of 4 us and two micro-batches: nobody is ever idle, where tokens come back in time.
  EXPECT_DOUBLE_EQ(InRounds({{4, 4}, {4, 4}}), 8);
  // A prompt's pipeline begins and ends empty.
  EXPECT_DOUBLE_EQ(PipelineMicros({}, {{4, 4}, {4, 4}}), 12);
  EXPECT_DOUBLE_EQ(InRounds({{1, 1}, {4, 4}}), 8);
}

TEST(PipelineTimeTest, FewerMicroBatchesThanStagesWaitForTheirTokens) {
  EXPECT_DOUBLE_EQ(InRounds({{1, 1}, {1, 1}, {1, 1}}), 3);
}

TEST(PipelineTimeTest, UnequalPassesFollowEachOther) {
  // 0-1 and 1-4 on the first stage, 1-3 and 4-5 on the second.
  EXPECT_DOUBLE_EQ(PipelineMicros({}, {{1, 3}, {2, 1}}), 5);
}

TEST(PipelineTimeTest, TheEndOfAStepThatTookLongIsNotPartOfTheNext) {
  // The first stage is through with the second step's first micro-batch, 10 to 14, before the last
  // one ends the first step at 19.
  EXPECT_DOUBLE_EQ(PipelineMicros({{1, 1}, {9, 9}}, {{4, 4}, {2, 2}}), 6);
}

TEST(PassesOnPathTest, NamesTheStageThatEveryMicroBatchWaitsFor) {
  EXPECT_THAT(PassesOnPath({1, 4}, 2, PipelineEnd::kReturnsTokens), ElementsAre(0, 2));
  EXPECT_THAT(PassesOnPath({1, 4}, 1, PipelineEnd::kReturnsTokens), ElementsAre(1, 1));
  EXPECT_THAT(PassesOnPath({4, 1}, 3, PipelineEnd::kRunsEmpty), ElementsAre(3, 1));
}

// What the planner adds up is what the executor's passes take.
TEST(PassesOnPathTest, AddUpToTheTimeOfEqualPasses) {
  uint64_t at = 0;
  const auto random = [&at](uint64_t below) { return CounterRandom(3, 5, at++) % below; };
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t micro_batches = 1 + random(6);
    std::vector<double> stage_us(2 + random(4));
    std::vector<std::vector<double>> pass_us;
    for (double& us : stage_us) {
      us = 1 + static_cast<double>(random(8));
      pass_us.emplace_back(micro_batches, us);
    }
    for (const PipelineEnd end : {PipelineEnd::kReturnsTokens, PipelineEnd::kRunsEmpty}) {
      const std::vector<double> path =
          PassesOnPath(stage_us, static_cast<int64_t>(micro_batches), end);
      EXPECT_DOUBLE_EQ(
          std::inner_product(path.begin(), path.end(), stage_us.begin(), 0.0),
          end == PipelineEnd::kReturnsTokens ? InRounds(pass_us) : PipelineMicros({}, pass_us));
    }
  }
}

}  // namespace
}  // namespace lastflop
