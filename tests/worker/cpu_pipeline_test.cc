// Pipelines on the CPU backend: checks, times, waits, refusals.
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/cpu_gang.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDraw = 5;

Plan PipelinePlan(int64_t stages, int64_t micro_batches, int64_t tensor = 1) {
  Plan plan;
  plan.parallel.pipeline = stages;
  plan.parallel.micro_batches = micro_batches;
  plan.parallel.tensor = tensor;
  return plan;
}

// Six layers, so that stages are equal.
Model SixLayers() {
  Model model = TinyModel(AttentionKind::kGqa);
  model.num_layers = 6;
  model.layer_kinds.assign(6, LayerKind::kMoe);
  return model;
}

void OnArms(const BackendOptions& options, const Plan& plan, const Point& point, int num_ranks,
            const std::function<void(Gang& gang, Arm& arm)>& fn) {
  OnRanks(options, num_ranks, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(plan, point, gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    fn(gang, **arm);
  });
}

TEST(CpuPipelineTest, EveryRankHasTheSameStepAndAWaitOfItsOwn) {
  for (const int64_t micro_batches : {1, 2}) {
    std::vector<StepTiming> timings(3);
    OnArms(TinyOptions(SixLayers()), PipelinePlan(2, micro_batches), TinyPoint(), 3,
           [&](Gang& gang, Arm& arm) {
             const auto timing = arm.Run();
             ASSERT_TRUE(timing.ok()) << timing.status();
             timings[static_cast<size_t>(gang.rank())] = *timing;
             EXPECT_THAT(arm.effective_note(), HasSubstr("1 of 3 ranks are idle"));
             EXPECT_THAT(arm.effective_note(), HasSubstr("between two tokens of a sequence"));
           });
    EXPECT_GT(timings[0].us, 0);
    EXPECT_DOUBLE_EQ(timings[0].us, timings[1].us);
    // Of one micro-batch some stage always waits: together they are idle for a step.
    if (micro_batches == 1) {
      EXPECT_GT(timings[0].wait_us + timings[1].wait_us, 0.9 * timings[0].us);
    }
    EXPECT_LE(timings[0].wait_us, timings[0].us);
  }
}

// A host's time a launch that dwarfs all else makes the arithmetic of passes visible.
TEST(CpuPipelineTest, TakesTheLongestPathThroughItsPasses) {
  constexpr double kLaunchUs = 1e6;
  const auto micros = [&](int64_t micro_batches, Phase phase) {
    Plan plan = PipelinePlan(2, micro_batches);
    plan.launch.host_us_per_launch = kLaunchUs;
    Point point = TinyPoint();
    point.phase = phase;
    double us = 0;
    OnArms(TinyOptions(SixLayers()), plan, point, 2, [&](Gang& gang, Arm& arm) {
      const auto timing = arm.Run();
      ASSERT_TRUE(timing.ok()) << timing.status();
      if (gang.rank() == 0) {
        us = timing->us;
      }
    });
    return us / kLaunchUs;
  };
  // Three layers of 14 ops; tokens in, embedding, send | receive, norm, head, sampling, tokens out.
  constexpr double kFirst = 3 * 14 + 3;
  constexpr double kSecond = 3 * 14 + 5;
  EXPECT_NEAR(micros(1, Phase::kDecode), kFirst + kSecond, 3);
  EXPECT_NEAR(micros(2, Phase::kDecode), 2 * kSecond, 3);
  EXPECT_NEAR(micros(3, Phase::kDecode), 3 * kSecond, 3);
  EXPECT_NEAR(micros(2, Phase::kPrefill), kFirst - 1 + 2 * (kSecond - 1), 3);
}

TEST(CpuPipelineTest, LayersThatAreKeptStandForTheOthersOnEveryStage) {
  Model model = SixLayers();
  BackendOptions options = TinyOptions(model);
  options.layers_kept = 1;
  Plan plan = PipelinePlan(2, 1);
  plan.launch.host_us_per_launch = 1e6;
  OnArms(options, plan, TinyPoint(), 2, [&](Gang& /*gang*/, Arm& arm) {
    const auto timing = arm.Run();
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_NEAR(timing->us / 1e6, 6 * 14 + 8, 3);
  });
}

TEST(CpuPipelineTest, BreakdownClosesToTheStepAndShowsAllStages) {
  BackendOptions options = TinyOptions(SixLayers());
  options.machine.peak_bandwidth_gb_per_s = 100;
  for (const int64_t micro_batches : {1, 2}) {
    OnArms(options, PipelinePlan(2, micro_batches), TinyPoint(), 2, [&](Gang& gang, Arm& arm) {
      const auto breakdown = arm.MeasureBreakdown(3);
      ASSERT_TRUE(breakdown.ok()) << breakdown.status();
      EXPECT_TRUE(breakdown->of_all_ranks);
      double sum_us = 0;
      double host_us = 0;
      std::vector<std::string> names;
      for (const BreakdownEntry& entry : breakdown->entries) {
        sum_us += entry.us;
        host_us += entry.op == "host" ? entry.us : 0;
        names.push_back(entry.op);
        // A hand-over is transfer: a bubble is no part of it.
        if (entry.op == "pipeline.receive" || entry.op == "pipeline.receive_tokens") {
          EXPECT_LT(entry.us, 0.3 * breakdown->step_us) << entry.op << " on " << gang.rank();
        }
      }
      if (host_us > 0) {
        EXPECT_NEAR(sum_us, breakdown->step_us, 1e-6 * breakdown->step_us);
      }
      if (micro_batches == 1) {
        EXPECT_THAT(names, ::testing::IsSupersetOf({"embedding", "lm_head", "pipeline.receive",
                                                    "pipeline.send", "pipeline.send_tokens"}));
      }
    });
  }
}

TEST(CpuPipelineTest, ChosenExpertsAreThoseOfAPlanWithoutStages) {
  std::vector<int32_t> experts[3];
  const Plan plans[3] = {Plan{}, PipelinePlan(2, 1), PipelinePlan(3, 2)};
  for (size_t i = 0; i < 3; ++i) {
    OnArms(TinyOptions(SixLayers()), plans[i], TinyPoint(), static_cast<int>(plans[i].num_ranks()),
           [&](Gang& gang, Arm& arm) {
             const auto check = arm.Check(kDraw);
             ASSERT_TRUE(check.ok()) << check.status();
             EXPECT_TRUE(check->ok) << check->detail;
             const auto chosen = arm.ChosenExperts();
             ASSERT_TRUE(chosen.ok());
             if (gang.rank() == 0) {
               experts[i] = *chosen;
             }
           });
  }
  EXPECT_EQ(experts[0].size(), 6U * 6U * 2U);
  EXPECT_EQ(experts[0], experts[1]);
  EXPECT_EQ(experts[0], experts[2]);
}

TEST(CpuPipelineTest, FindsAHandOverThatWasDropped) {
  for (const bool after_timing : {false, true}) {
    std::atomic<int> num_found = 0;
    OnRanks(TinyOptions(SixLayers()), 2, [&](CpuBackend& backend, Gang& gang) {
      bool drops = !after_timing;
      int num_received = 0;
      backend.set_after_op([&](const Op& op, std::span<std::byte> out) {
        // The second micro-batch's: its place keeps what was there before.
        if (op.name == "pipeline.receive" && ++num_received % 2 == 0 && drops) {
          std::fill(out.begin(), out.end(), std::byte{0xFF});
        }
      });
      auto arm = backend.Prepare(PipelinePlan(2, 2), TinyPoint(), gang);
      ASSERT_TRUE(arm.ok()) << arm.status();
      if (after_timing) {
        const auto before = (*arm)->Check(kDraw);
        ASSERT_TRUE(before.ok()) << before.status();
        EXPECT_TRUE(before->ok) << before->detail;
        ASSERT_TRUE((*arm)->Run().ok());
        drops = true;
      }
      const auto check = (*arm)->Check(kDraw + 1);
      ASSERT_TRUE(check.ok()) << check.status();
      EXPECT_EQ(check->ok, gang.rank() == 0) << check->detail;
      if (gang.rank() == 1) {
        EXPECT_THAT(check->detail, HasSubstr("pipeline.receive"));
        EXPECT_THAT(check->detail, HasSubstr("values handed over"));
        ++num_found;
      }
    });
    EXPECT_EQ(num_found, 1);
  }
}

TEST(CpuPipelineTest, NamesAStageThatEndedBetweenSteps) {
  const std::string path = ::testing::TempDir() + "lastflop-stage-" + std::to_string(getpid());
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      auto gang = JoinGang(path, rank, 2, std::chrono::seconds(20));
      ASSERT_TRUE(gang.ok()) << gang.status();
      BackendOptions options = TinyOptions(SixLayers());
      options.rank = rank;
      options.num_ranks = 2;
      auto backend = CpuBackend::Create(options);
      ASSERT_TRUE(backend.ok()) << backend.status();
      auto arm = (*backend)->Prepare(PipelinePlan(2, 2), TinyPoint(), **gang);
      ASSERT_TRUE(arm.ok()) << arm.status();
      ASSERT_TRUE((*arm)->Run().ok());
      if (rank == 1) {
        const absl::Status status = (*arm)->Run().status();
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 of 2 ended"));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(CpuPipelineTest, RefusesDataAttentionInStagesAndUnequalMicroBatches) {
  OnRanks(TinyOptions(SixLayers()), 1, [&](CpuBackend& backend, Gang& gang) {
    Plan exchanged = PipelinePlan(2, 1);
    exchanged.parallel.data = 2;
    exchanged.parallel.expert = 2;
    const auto refused = backend.Prepare(exchanged, TinyPoint(), gang);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("parallel.pipeline=2"));
    const auto uneven = backend.Prepare(PipelinePlan(2, 4), TinyPoint(6), gang);
    EXPECT_EQ(uneven.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(uneven.status().message()), HasSubstr("6 mod 4 = 2"));
  });
}

}  // namespace
}  // namespace lastflop
