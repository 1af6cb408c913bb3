#include <unistd.h>

#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/cpu_gang.h"
#include "worker/cpu_check_op.h"

namespace lastflop {
namespace {

constexpr int64_t kDraw = 5;

Plan PlanOf(const std::vector<std::pair<std::string, std::string>>& fields) {
  Plan plan;
  for (const auto& [path, value] : fields) {
    const absl::Status status = SetPlanField(path, value, plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  return plan;
}

// Final hidden states of all tokens, after a check and a run; by replica where ranks have tokens of
// their own.
std::vector<float> OutputOf(const Model& model, const Plan& plan, const Point& point) {
  const auto num_ranks = static_cast<int>(plan.num_ranks());
  std::vector<std::vector<float>> outputs(static_cast<size_t>(num_ranks));
  OnRanks(TinyOptions(model), num_ranks, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(plan, point, gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(kDraw + 1);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->detail;
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_GT(timing->us, 0);
    outputs[static_cast<size_t>(gang.rank())] = *(*arm)->Output();
  });
  std::vector<float> all;
  const Layout first = MakeLayout(model, plan, 0);
  // All stages of a pipeline have the last one's.
  const auto stage_ranks = static_cast<int>(num_ranks / plan.parallel.pipeline);
  for (int rank = 0; rank < stage_ranks; rank += static_cast<int>(first.tensor)) {
    const auto& output = outputs[static_cast<size_t>(rank)];
    all.insert(all.end(), output.begin(), output.end());
  }
  return all;
}

double RelativeError(const std::vector<float>& out, const std::vector<float>& reference) {
  if (out.size() != reference.size()) {
    return INFINITY;
  }
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    error += std::pow(out[i] - reference[i], 2);
    norm += std::pow(reference[i], 2);
  }
  return std::sqrt(error / norm);
}

class EveryPlanTest
    : public ::testing::TestWithParam<std::vector<std::pair<std::string, std::string>>> {};

TEST_P(EveryPlanTest, GivesTheBaselinesOutput) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = TinyModel(kind);
    const std::vector<float> baseline = OutputOf(model, Plan{}, TinyPoint());
    ASSERT_EQ(baseline.size(), 6U * 64U);
    // bf16 activations, rounded at other places: a few units of 2^-8 over three layers.
    EXPECT_LT(RelativeError(OutputOf(model, PlanOf(GetParam()), TinyPoint()), baseline), 0.02)
        << ToWord(kind);
  }
}

using Fields = std::vector<std::pair<std::string, std::string>>;

INSTANTIATE_TEST_SUITE_P(
    Plans, EveryPlanTest,
    ::testing::Values(
        Fields{{"moe.kernel", "fused"}}, Fields{{"moe.tile_order", "column_major"}},
        Fields{{"moe.kernel", "reference"}}, Fields{{"moe.dequant", "separate"}},
        Fields{{"moe.dequant", "separate"}, {"moe.kernel", "fused"}},
        Fields{{"parallel.tensor", "2"}},
        Fields{{"parallel.tensor", "2"}, {"collectives.all_reduce", "ring"}},
        Fields{{"parallel.tensor", "2"}, {"collectives.all_reduce", "two_shot"}},
        Fields{{"parallel.tensor", "2"}, {"parallel.expert", "2"}},
        Fields{{"parallel.tensor", "2"}, {"parallel.expert", "2"}, {"moe.kernel", "fused"}},
        Fields{{"parallel.tensor", "4"}, {"parallel.expert", "2"}},
        Fields{{"parallel.tensor", "2"}, {"parallel.expert", "2"}, {"parallel.attention", "data"}},
        Fields{{"parallel.data", "2"}, {"parallel.expert", "2"}, {"moe.kernel", "fused"}},
        Fields{{"parallel.data", "2"}}, Fields{{"parallel.tensor", "2"}, {"parallel.data", "2"}},
        Fields{{"parallel.pipeline", "2"}},
        Fields{{"parallel.pipeline", "2"}, {"parallel.micro_batches", "2"}},
        Fields{{"parallel.pipeline", "3"}, {"parallel.micro_batches", "6"}},
        Fields{
            {"parallel.pipeline", "2"}, {"parallel.micro_batches", "3"}, {"moe.kernel", "fused"}},
        Fields{
            {"parallel.pipeline", "2"}, {"parallel.micro_batches", "2"}, {"parallel.tensor", "2"}},
        Fields{{"parallel.pipeline", "2"}, {"parallel.tensor", "2"}, {"parallel.expert", "2"}}));

TEST(CpuExecutorTest, RunsAnIdleExpertRankAndExpertsWithoutTokens) {
  Point point = TinyPoint(1);
  point.routing.distribution = Distribution::kAllToOne;
  const Model model = TinyModel(AttentionKind::kGqa);
  const std::vector<float> baseline = OutputOf(model, Plan{}, point);
  const Plan plan = PlanOf({{"parallel.tensor", "4"}, {"parallel.expert", "4"}});
  EXPECT_LT(RelativeError(OutputOf(model, plan, point), baseline), 0.02);
}

TEST(CpuExecutorTest, TimesKeptLayersSeveralTimesWithTheRoutingOfOthers) {
  Model model = TinyModel(AttentionKind::kGqa);
  model.num_layers = 24;
  model.layer_kinds.assign(24, LayerKind::kMoe);
  BackendOptions options = TinyOptions(model);
  options.layers_kept = 2;
  options.machine.l2_bytes = 1 << 12;  // A pass of two tiny layers leaves nothing in it.
  OnRanks(options, 2, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(PlanOf({{"parallel.tensor", "2"}}), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    EXPECT_THAT((*arm)->effective_note(), testing::HasSubstr("mean over 4 passes"));
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    ASSERT_TRUE((*arm)->Run().ok());
    const auto first = (*arm)->ChosenExperts();
    const auto check = (*arm)->Check(kDraw);
    ASSERT_TRUE(check.ok() && check->ok) << check.status();
    // The last pass had the routing of other layers than the first, which a check runs alone.
    EXPECT_NE(*first, *(*arm)->ChosenExperts());
    const auto breakdown = (*arm)->MeasureBreakdown(1);
    ASSERT_TRUE(breakdown.ok()) << breakdown.status();
    double sum_us = 0;
    for (const BreakdownEntry& entry : breakdown->entries) {
      sum_us += entry.us;
    }
    EXPECT_NEAR(sum_us, breakdown->step_us, 1e-6 * breakdown->step_us);
  });
}

TEST(CpuExecutorTest, RunsOnePassWhereASecondWouldFindItsWeightsInTheCache) {
  Model model = TinyModel(AttentionKind::kGqa);
  model.num_layers = 24;
  model.layer_kinds.assign(24, LayerKind::kMoe);
  BackendOptions options = TinyOptions(model);
  options.layers_kept = 2;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(Plan{}, TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    EXPECT_THAT((*arm)->effective_note(), testing::Not(testing::HasSubstr("passes")));
  });
}

TEST(CpuExecutorTest, RunsPrefillAndSpeculation) {
  const Model model = TinyModel(AttentionKind::kMla);
  Point prefill = TinyPoint(2);
  prefill.phase = Phase::kPrefill;
  const Plan two = PlanOf({{"parallel.tensor", "2"}});
  EXPECT_LT(RelativeError(OutputOf(model, two, prefill), OutputOf(model, Plan{}, prefill)), 0.02);
  Plan speculative =
      PlanOf({{"decode.speculative.draft_tokens", "3"}, {"decode.speculative.acceptance", "0.5"}});
  EXPECT_EQ(OutputOf(model, speculative, TinyPoint(2)).size(), 2U * 4U * 64U);
}

TEST(CpuExecutorTest, OtherWeightFormatsAreOfTheSameModel) {
  const Model model = TinyModel(AttentionKind::kGqa);
  const std::vector<float> bf16 = OutputOf(model, PlanOf({{"moe.weights", "bf16"}}), TinyPoint());
  for (const char* format : {"int4_g32", "fp8"}) {
    const std::vector<float> out = OutputOf(model, PlanOf({{"moe.weights", format}}), TinyPoint());
    EXPECT_GT(RelativeError(out, bf16), 1e-3) << format;
    EXPECT_LT(RelativeError(out, bf16), 0.3) << format;
  }
}

TEST(CpuExecutorTest, AnotherCacheFormatIsCloseAndNotEqual) {
  const Model model = TinyModel(AttentionKind::kGqa);
  const double error =
      RelativeError(OutputOf(model, PlanOf({{"attention.cache", "fp8"}}), TinyPoint()),
                    OutputOf(model, Plan{}, TinyPoint()));
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 0.2);
}

// One rank, one arm.
void OnOneRank(const BackendOptions& options, const Plan& plan,
               const std::function<void(CpuBackend& backend, Arm& arm)>& fn) {
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(plan, TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    fn(backend, **arm);
  });
}

TEST(CpuExecutorTest, OpportunisticExpertsChangeRoutesAndTouchFewer) {
  const BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  std::vector<int32_t> routes[2];
  double unique[2] = {};
  for (const int arm_index : {0, 1}) {
    Plan plan;
    plan.moe.opportunistic_keep = arm_index;
    OnOneRank(options, plan, [&](CpuBackend& /*backend*/, Arm& arm) {
      const auto check = arm.Check(kDraw);
      ASSERT_TRUE(check.ok());
      EXPECT_TRUE(check->ok) << check->detail;
      routes[arm_index] = *arm.ChosenExperts();
      unique[arm_index] = arm.unique_experts();
    });
  }
  EXPECT_EQ(routes[0].size(), 3U * 6U * 2U);
  EXPECT_NE(routes[0], routes[1]);
  EXPECT_LT(unique[1], unique[0]);
}

TEST(CpuExecutorTest, NamesTheOpWhoseOutputIsWrong) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const BackendOptions options = TinyOptions(TinyModel(kind));
    std::vector<std::string> names;
    OnOneRank(options, Plan{}, [&](CpuBackend& backend, Arm& /*arm*/) {
      backend.set_after_op([&](const Op& op, std::span<std::byte> out) {
        if (op.layer == 2 && !out.empty()) {
          names.push_back(op.name);
        }
      });
      auto gang = JoinGang("", 0, 1, std::chrono::seconds(1));
      auto arm = backend.Prepare(Plan{}, TinyPoint(), **gang);
      ASSERT_TRUE((*arm)->Check(kDraw)->ok);
      for (const std::string& name : names) {
        backend.set_after_op([&](const Op& op, std::span<std::byte> out) {
          if (op.layer == 2 && op.name == name) {
            out[1] ^= std::byte{0x40};  // An exponent bit of the first bf16 value.
            out[3] ^= std::byte{0x40};
          }
        });
        auto spoilt = backend.Prepare(Plan{}, TinyPoint(), **gang);
        const auto check = (*spoilt)->Check(kDraw);
        ASSERT_TRUE(check.ok()) << check.status();
        EXPECT_FALSE(check->ok) << name;
        EXPECT_THAT(check->detail, ::testing::HasSubstr(name + " in layer 2"));
      }
    });
    EXPECT_GE(names.size(), 12U);
  }
}

TEST(CpuExecutorTest, ASeedOfATurnChoosesItsLayerHoweverManyThereAre) {
  for (const uint64_t num_layers : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{60}}) {
    for (const uint64_t random :
         {uint64_t{0}, uint64_t{1} << 62, uint64_t{3} << 62, ~uint64_t{0}, uint64_t{12345}}) {
      for (const uint64_t turn : {uint64_t{0}, num_layers / 2, num_layers - 1, num_layers}) {
        EXPECT_EQ(SeedOfTurn(random, num_layers, turn) % num_layers, turn % num_layers)
            << random << " of " << num_layers;
      }
    }
  }
}

TEST(CpuExecutorTest, RefusesTilesForItsReferenceKernel) {
  OnRanks(TinyOptions(TinyModel(AttentionKind::kGqa)), 1, [&](CpuBackend& backend, Gang& gang) {
    const Fields fields = {{"moe.tile_order", "column_major"}, {"moe.group_m", "4"}};
    for (const auto& field : fields) {
      const auto arm =
          backend.Prepare(PlanOf({{"moe.kernel", "reference"}, field}), TinyPoint(), gang);
      EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented) << arm.status();
      EXPECT_NE(std::string(arm.status().message()).find(field.first), std::string::npos);
    }
  });
}

TEST(CpuExecutorTest, NamesTheFieldThatItDoesNotSupport) {
  const Fields fields = {{"launch.graph", "full"},
                         {"launch.dependent", "true"},
                         {"launch.steps", "4"},
                         {"moe.cache_hint", "evict_first"},
                         {"moe.activations", "fp8"},
                         {"moe.weights", "nvfp4"},
                         {"moe.kernel", "cutlass"},
                         {"moe.kernel", "cublaslt"},
                         {"moe.kernel", "plugin:fast"},
                         {"moe.redundant_experts", "2"},
                         {"collectives.all_reduce", "nccl"},
                         {"collectives.all_to_all", "nccl"},
                         {"collectives.fuse_norm", "true"},
                         {"collectives.fuse_finalize", "true"},
                         {"collectives.payload", "fp8"},
                         {"overlap", "two_batch"},
                         {"engine.command", "vllm bench"}};
  OnRanks(TinyOptions(TinyModel(AttentionKind::kGqa)), 1, [&](CpuBackend& backend, Gang& gang) {
    for (const auto& field : fields) {
      const auto arm = backend.Prepare(PlanOf({field}), TinyPoint(), gang);
      EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented) << arm.status();
      EXPECT_THAT(std::string(arm.status().message()),
                  ::testing::HasSubstr(field.first + "=" + field.second));
    }
    Plan pinned;
    pinned.moe.l2_pin = L2Pin{.share = 0.75, .select = PinSelect::kPopularity};
    EXPECT_EQ(backend.Prepare(pinned, TinyPoint(), gang).status().code(),
              absl::StatusCode::kUnimplemented);
  });
}

TEST(CpuExecutorTest, RefusesWhatDoesNotFitWithItsArithmetic) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.machine.memory_bytes = 100'000;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    const auto arm = backend.Prepare(Plan{}, TinyPoint(), gang);
    EXPECT_EQ(arm.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(arm.status().message()), ::testing::HasSubstr("iB (weights"));
  });
}

TEST(CpuExecutorTest, RanksThatAPlanDoesNotNeedAreIdle) {
  OnRanks(TinyOptions(TinyModel(AttentionKind::kGqa)), 2, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(Plan{}, TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(kDraw);
    ASSERT_TRUE(check.ok() && check->ok);
    const auto timing = (*arm)->Run();
    ASSERT_TRUE(timing.ok());
    EXPECT_EQ(timing->us > 0, gang.rank() == 0);
    EXPECT_THAT((*arm)->effective_note(), ::testing::HasSubstr("1 of 2 ranks are idle"));
  });
}

TEST(CpuExecutorTest, AddsTheHostTimeOfSlowerEngines) {
  Plan plan;
  plan.launch.host_us_per_step = 5e6;
  plan.launch.host_us_per_launch = 1e6;
  const BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  OnOneRank(options, plan, [](CpuBackend& /*backend*/, Arm& arm) {
    const auto timing = arm.Run();
    ASSERT_TRUE(timing.ok());
    // 1 + 3 layers of 14 + 3 ops.
    EXPECT_GT(timing->us, 5e6 + 46e6);
    EXPECT_LT(timing->us, 5e6 + 46e6 + 5e6);
  });
}

TEST(CpuExecutorTest, BreakdownClosesToItsStep) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kMla));
  options.layers_kept = 1;
  options.machine.peak_bandwidth_gb_per_s = 100;
  OnOneRank(options, Plan{}, [](CpuBackend& /*backend*/, Arm& arm) {
    const auto breakdown = arm.MeasureBreakdown(3);
    ASSERT_TRUE(breakdown.ok()) << breakdown.status();
    double sum_us = 0;
    for (const BreakdownEntry& entry : breakdown->entries) {
      sum_us += entry.us;
      if (entry.op == "moe.gate_up") {
        EXPECT_EQ(entry.count, 2);  // One kept layer stands for two.
        EXPECT_GT(entry.floor_us, 0);
      }
      if (entry.op == "ffn.down") {
        EXPECT_EQ(entry.count, 1);
      }
    }
    EXPECT_NEAR(sum_us, breakdown->step_us, 1e-6 * breakdown->step_us);
    EXPECT_EQ(breakdown->entries.back().category, OpCategory::kHost);
    EXPECT_FALSE(arm.MeasureBreakdown(0).ok());
  });
}

TEST(CpuExecutorTest, LowDeclaredPeaksMakeMeasuredTimesImpossible) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  OnOneRank(options, Plan{},
            [](CpuBackend& /*backend*/, Arm& arm) { EXPECT_EQ(arm.least_possible_us(), 0); });
  options.machine.peak_bandwidth_gb_per_s = 1e-6;
  OnOneRank(options, Plan{}, [](CpuBackend& /*backend*/, Arm& arm) {
    EXPECT_GT(arm.least_possible_us(), arm.Run()->us);
  });
}

TEST(CpuExecutorTest, LabelsWarmAndZeroRuns) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.measure.warm = true;
  options.measure.zeros = true;
  OnOneRank(options, Plan{}, [](CpuBackend& backend, Arm& arm) {
    EXPECT_TRUE(arm.Check(kDraw)->ok);
    EXPECT_GT(arm.Run()->us, 0);
    EXPECT_THAT(arm.effective_note(), ::testing::HasSubstr("warm"));
    EXPECT_THAT(arm.effective_note(), ::testing::HasSubstr("zero data"));
    EXPECT_EQ(backend.Environment().at("data"), "zeros");
  });
}

TEST(CpuExecutorTest, SaysWhatReallyRan) {
  OnRanks(TinyOptions(TinyModel(AttentionKind::kGqa)), 2, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(PlanOf({{"parallel.tensor", "2"}}), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    EXPECT_EQ((*arm)->effective_plan().collectives.all_reduce, AllReduceAlgorithm::kOneShot);
    EXPECT_EQ((*arm)->effective_plan().moe.weights, WeightFormat::kInt4G32);
    EXPECT_THAT((*arm)->effective_note(), ::testing::HasSubstr("all_reduce auto -> one_shot"));
  });
}

TEST(CpuExecutorTest, EqualSeedsGiveEqualChecksums) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  std::vector<std::string> checksums;
  for (const uint64_t seed : {11U, 11U, 12U}) {
    options.data_seed = seed;
    const auto backend = CpuBackend::Create(options);
    ASSERT_TRUE(backend.ok());
    checksums.push_back((*backend)->DataChecksum());
  }
  EXPECT_EQ(checksums[0], checksums[1]);
  EXPECT_NE(checksums[0], checksums[2]);
}

}  // namespace
}  // namespace lastflop
