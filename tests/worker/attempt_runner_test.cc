#include "worker/attempt_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "tests/worker/fake_backend.h"
#include "tests/worker/thread_gang.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Plan VariantPlan() {
  Plan plan;
  plan.moe.kernel = MoeKernel::kFused;
  return plan;
}

// A campaign of one point, its variant a fused kernel, and everything that RunAttempt takes.
class AttemptRunnerTest : public ::testing::Test {
 protected:
  AttemptRunnerTest() {
    campaign_.points.push_back(Point{.batch = 1, .context = 16, .time_share = 1, .routing = {}});
    attempt_.attempt_id = "a1";
    attempt_.trial_id = "t1";
    attempt_.variant = VariantPlan();
    attempt_.seed = 11;
    attempt_.min_pairs = 10;
    attempt_.max_time = std::chrono::milliseconds(1000);
    launch_.launch = 2;
  }

  // The variant answers `variant`, the baseline the default script.
  void Script(FakeBackend& backend, const FakeArmScript& variant) {
    backend.script = [variant](const Plan& plan) {
      return plan == VariantPlan() ? variant : FakeArmScript{};
    };
  }

  AttemptInputs Inputs() {
    return AttemptInputs{.campaign = campaign_,
                         .launch = launch_,
                         .attempt = attempt_,
                         .stop = stop_,
                         .progress = [](absl::string_view, int64_t, double) {},
                         .now_s = [this] { return now_s_ += 0.001; }};
  }

  AttemptResult RunAlone(FakeBackend& backend) {
    ThreadGangHub hub(1);
    ThreadGang gang(hub, 0);
    return RunAttempt(backend, gang, Inputs());
  }

  // Runs every rank on a thread with a backend and a clock of its own.
  std::vector<AttemptResult> RunRanks(const std::vector<FakeArmScript>& variants) {
    ThreadGangHub hub(static_cast<int>(variants.size()));
    std::vector<AttemptResult> results(variants.size());
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < variants.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        FakeBackend backend;
        Script(backend, variants[rank]);
        ThreadGang gang(hub, static_cast<int>(rank));
        double clock_s = 1000.0 * static_cast<double>(rank);
        AttemptInputs inputs = Inputs();
        inputs.now_s = [&clock_s] { return clock_s += 0.001; };
        results[rank] = RunAttempt(backend, gang, inputs);
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    return results;
  }

  Campaign campaign_;
  LaunchSpec launch_;
  AttemptSpec attempt_;
  StopRule stop_ = [](std::span<const Pair>, Micros) { return true; };
  double now_s_ = 0;
};

TEST_F(AttemptRunnerTest, GivesPairsOfBothArmsWithTheirLaunchAndDraw) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.us = 80});
  const AttemptResult result = RunAlone(backend);
  ASSERT_FALSE(result.failure.has_value()) << result.failure->message;
  ASSERT_EQ(result.samples.size(), 10u);
  int num_variant_first = 0;
  for (size_t i = 0; i < result.samples.size(); ++i) {
    const Pair& pair = result.samples[i].pair;
    EXPECT_EQ(pair.launch, 2);
    EXPECT_NEAR(pair.baseline_us, 100, 1);
    EXPECT_NEAR(pair.variant_us, 80, 1);
    num_variant_first += result.samples[i].variant_first ? 1 : 0;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(pair.draw, result.samples[j].pair.draw) << "a draw was used twice";
    }
  }
  // Of every two pairs one has either order.
  EXPECT_EQ(num_variant_first, 5);
  EXPECT_EQ(result.environment.at("backend"), "fake");
  EXPECT_EQ(result.effective_variant, CanonicalText(VariantPlan()));
}

TEST_F(AttemptRunnerTest, GivesNoTimesForAWrongResult) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.check_ok = false});
  const AttemptResult result = RunAlone(backend);
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->kind, FailureKind::kWrongResult);
  EXPECT_THAT(result.failure->message, HasSubstr("variant checked before timing"));
  EXPECT_THAT(result.failure->message, HasSubstr("moe.down, layer 0"));
  EXPECT_TRUE(result.samples.empty());
  EXPECT_EQ(backend.num_runs, 0) << "timed although the check had failed";
}

TEST_F(AttemptRunnerTest, KeepsTheSamplesWhenTheResultIsWrongAfterTiming) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.check_after_ok = false});
  const AttemptResult result = RunAlone(backend);
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->kind, FailureKind::kWrongResult);
  EXPECT_THAT(result.failure->message, HasSubstr("after timing"));
  EXPECT_FALSE(result.samples.empty());
  EXPECT_GT(result.sampling_s, 0);
}

TEST_F(AttemptRunnerTest, LeavesSpeculationOutOfPrefillAndSaysSo) {
  campaign_.points[0].phase = Phase::kPrefill;
  attempt_.variant = Plan{};
  attempt_.variant.speculative = {.draft_tokens = 3, .acceptance = 0.7, .draft_cost = 0.5};
  FakeBackend backend;
  const AttemptResult result = RunAlone(backend);
  ASSERT_FALSE(result.failure.has_value()) << result.failure->message;
  EXPECT_EQ(result.effective_variant, CanonicalText(Plan{}));
  EXPECT_THAT(result.effective_note, HasSubstr("decode.speculative is off"));
  EXPECT_NEAR(result.samples[0].pair.variant_us, 100, 1) << "no draft is paid for";
}

TEST_F(AttemptRunnerTest, NamesWhatTheBackendCannotHonour) {
  FakeBackend backend;
  Script(backend,
         FakeArmScript{.prepare = absl::UnimplementedError("launch.graph=full: no graphs")});
  const AttemptResult result = RunAlone(backend);
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->kind, FailureKind::kUnsupported);
  EXPECT_EQ(result.failure->message, "launch.graph=full: no graphs");
}

TEST_F(AttemptRunnerTest, CallsATimeUnderTheDeclaredPeakImpossible) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.us = 10, .least_possible_us = 12});
  const AttemptResult result = RunAlone(backend);
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->kind, FailureKind::kImpossible);
  EXPECT_THAT(result.failure->message, HasSubstr("faster than the declared peak"));
  EXPECT_TRUE(result.samples.empty());
}

TEST_F(AttemptRunnerTest, CallsATimeOfZeroImpossible) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.us = 0});
  const AttemptResult result = RunAlone(backend);
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->kind, FailureKind::kImpossible);
}

TEST_F(AttemptRunnerTest, StopsAtMaxTimeWhenTheTargetIsOutOfReach) {
  FakeBackend backend;
  stop_ = [](std::span<const Pair>, Micros) { return false; };
  attempt_.max_time = std::chrono::milliseconds(50);  // The fake clock moves 1 ms a look.
  const AttemptResult result = RunAlone(backend);
  ASSERT_FALSE(result.failure.has_value());
  EXPECT_GE(result.samples.size(), 10u);
  EXPECT_LE(result.samples.size(), 60u);
}

TEST_F(AttemptRunnerTest, ReportsErrorAndChangedRoutesAgainstTheBaseline) {
  FakeBackend backend;
  Script(backend, FakeArmScript{.output = {1.0f, 2.5f}, .experts = {0, 1, 2, 9}});
  const AttemptResult result = RunAlone(backend);
  ASSERT_FALSE(result.failure.has_value());
  EXPECT_NEAR(result.check_after.error_to_baseline, 0.5 / std::sqrt(5.0), 1e-6);
  EXPECT_DOUBLE_EQ(result.check_after.changed_routes, 0.25);
}

TEST_F(AttemptRunnerTest, TakesTheSlowestRankAndStaysInStepWhenClocksDiffer) {
  const std::vector<AttemptResult> results =
      RunRanks({FakeArmScript{.us = 50, .noise = 0}, FakeArmScript{.us = 90, .noise = 0}});
  for (const AttemptResult& result : results) {
    ASSERT_FALSE(result.failure.has_value()) << result.failure->message;
    EXPECT_EQ(result.samples.size(), results[0].samples.size());
    EXPECT_DOUBLE_EQ(result.samples[0].pair.variant_us, 90);
  }
}

TEST_F(AttemptRunnerTest, EndsEveryRankWhenOneFailsInAStep) {
  const std::vector<AttemptResult> results =
      RunRanks({FakeArmScript{}, FakeArmScript{.run = absl::InternalError("kernel failed")}});
  for (const AttemptResult& result : results) {
    ASSERT_TRUE(result.failure.has_value());
    EXPECT_EQ(result.failure->rank, 1);
    EXPECT_THAT(result.failure->message, HasSubstr("rank 1: kernel failed"));
  }
}

TEST_F(AttemptRunnerTest, BreaksDownOnlyWhenAsked) {
  FakeBackend backend;
  EXPECT_TRUE(RunAlone(backend).breakdown.empty());
  attempt_.breakdown = true;
  const AttemptResult result = RunAlone(backend);
  ASSERT_EQ(result.breakdown.size(), 1u);
  EXPECT_EQ(result.breakdown_method, "fake");
}

TEST_F(AttemptRunnerTest, BreaksDownTheRankThatHasMostToDo) {
  attempt_.breakdown = true;
  for (const AttemptResult& result :
       RunRanks({FakeArmScript{.moe_us = 40}, FakeArmScript{.moe_us = 70}})) {
    ASSERT_EQ(result.breakdown.size(), 1u);
    EXPECT_EQ(result.breakdown[0].us, 70);
    EXPECT_THAT(result.breakdown_method, HasSubstr("of rank 1"));
  }
}

TEST(MakeComparableTest, DividesASpeculativeStepByTheTokensItYields) {
  Plan speculative;
  speculative.speculative = {.draft_tokens = 4, .acceptance = 0.8, .draft_cost = 0.1};
  // A verification step of 120 us and four drafts of 10 us yield 3.3616 tokens a sequence.
  const ComparableTimes times = MakeComparable(100, 120, Plan{}, speculative, 1, 3.3616);
  EXPECT_DOUBLE_EQ(times.baseline_us, 100);
  EXPECT_NEAR(times.variant_us, 160 / 3.3616, 1e-9);
}

}  // namespace
}  // namespace lastflop
