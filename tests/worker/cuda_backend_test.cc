#include "worker/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plan_fields.h"

namespace lastflop {
namespace {

constexpr int64_t kDraw = 5;

// As the small one, with dense weights in fp8: projections are made of whole blocks of 128 x 128.
Model Fp8Model(AttentionKind kind) {
  Model model = SmallModel(kind);
  const WeightStorage fp8 = StorageOf(WeightFormat::kFp8Block);
  model.experts = model.shared = model.dense = model.attention_weights = fp8;
  model.attention.num_heads = 8;
  if (kind == AttentionKind::kGqa) {
    model.attention.head_dim = 32;
    model.attention.rotary_dim = 32;
    model.attention.bias = true;
  } else {
    model.attention.v_head_dim = 32;
    model.attention.q_lora_rank = 128;
    model.attention.qk_rope_head_dim = 16;
    model.attention.rotary_dim = 16;
    model.dense_intermediate_size = 256;
    model.shared_intermediate_size = 128;
  }
  return model;
}

double DistanceOf(const std::vector<float>& output, const std::vector<float>& wanted) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < output.size() && i < wanted.size(); ++i) {
    error += (output[i] - wanted[i]) * (output[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return output.size() == wanted.size() && norm > 0 ? std::sqrt(error / norm) : 1e9;
}

// bf16 activations, rounded at other places: a few units of 2^-8 over three layers.
constexpr double kMostDistance = 0.02;

class CudaBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTFLOP_NEED_GPU();
    gang_ = *JoinGang("", 0, 1, std::chrono::seconds(10));
  }

  std::unique_ptr<CudaBackend> MakeBackend(const BackendOptions& options) {
    auto backend = CudaBackend::Create(options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  // Output of the plan after a check that must pass.
  std::vector<float> OutputOf(const Model& model, const Plan& plan,
                              const Point& point = TinyPoint()) {
    const auto backend = MakeBackend(TinyOptions(model));
    EXPECT_TRUE(backend->StartAttempt(plan, plan, point, *gang_).ok());
    auto arm = backend->Prepare(plan, point, *gang_);
    EXPECT_TRUE(arm.ok()) << arm.status();
    if (!arm.ok()) {
      return {};
    }
    const auto check = (*arm)->Check(kDraw + 1);
    EXPECT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check.ok() && check->ok) << (check.ok() ? check->detail : "");
    EXPECT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    EXPECT_TRUE(timing.ok()) << timing.status();
    EXPECT_GT(timing.ok() ? timing->us : 0, 0);
    return *(*arm)->Output();
  }

  std::vector<float> CpuOutputOf(const Model& model, const Plan& plan,
                                 const Point& point = TinyPoint()) {
    const auto cpu = CpuBackend::Create(TinyOptions(model));
    EXPECT_TRUE(cpu.ok()) << cpu.status();
    auto arm = (*cpu)->Prepare(plan, point, *gang_);
    EXPECT_TRUE(arm.ok()) << arm.status();
    EXPECT_TRUE((*arm)->SetDraw(kDraw).ok());
    EXPECT_TRUE((*arm)->Run().ok());
    return *(*arm)->Output();
  }

  // Median of some steps of the plan, ready at the first draw.
  double MedianMicros(Arm& arm) {
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      const auto timing = arm.Run();
      EXPECT_TRUE(timing.ok()) << timing.status();
      times.push_back(timing.ok() ? timing->us : 0);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  std::unique_ptr<Gang> gang_;
};

TEST_F(CudaBackendTest, GivesTheCpuBackendsOutputForEveryPlan) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = SmallModel(kind);
    const std::vector<float> wanted = CpuOutputOf(model, Plan{});
    for (const Fields& fields :
         std::vector<Fields>{{},
                             {{"launch.graph", "full"}},
                             {{"launch.graph", "piecewise"}},
                             {{"moe.kernel", "fused"}, {"launch.graph", "full"}},
                             {{"moe.tile_order", "column_major"}},
                             {{"moe.group_m", "4"}},
                             {{"moe.dequant", "separate"}},
                             {{"moe.cache_hint", "evict_first"}},
                             {{"moe.l2_pin.share", "0.5"}, {"launch.graph", "full"}}}) {
      const std::vector<float> output = OutputOf(model, PlanOf(fields));
      EXPECT_LT(DistanceOf(output, wanted), kMostDistance)
          << ToWord(kind) << " " << (fields.empty() ? "baseline" : fields[0].first);
    }
  }
}

// Plans that compute something else than the baseline, and prompts.
TEST_F(CudaBackendTest, GivesTheCpuBackendsOutputOfTheSamePlan) {
  Point prefill = TinyPoint();
  prefill.phase = Phase::kPrefill;
  prefill.context = 37;
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = SmallModel(kind);
    for (const Fields& fields : std::vector<Fields>{{{"moe.expert_activation", "opportunistic:1"}},
                                                    {{"attention.cache", "fp8"}},
                                                    {{"decode.speculative.draft_tokens", "2"},
                                                     {"decode.speculative.acceptance", "0.7"}}}) {
      const Plan plan = PlanOf(fields);
      EXPECT_LT(DistanceOf(OutputOf(model, plan), CpuOutputOf(model, plan)), kMostDistance)
          << ToWord(kind) << " " << fields[0].first;
    }
    EXPECT_LT(DistanceOf(OutputOf(model, PlanOf({{"launch.graph", "full"}}), prefill),
                         CpuOutputOf(model, Plan{}, prefill)),
              kMostDistance)
        << ToWord(kind) << " prefill";
  }
}

TEST_F(CudaBackendTest, GivesTheCpuBackendsOutputForFp8Models) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = Fp8Model(kind);
    const Plan plan = PlanOf({{"launch.graph", "full"}});
    EXPECT_LT(DistanceOf(OutputOf(model, plan), CpuOutputOf(model, Plan{})), kMostDistance)
        << ToWord(kind);
  }
}

TEST_F(CudaBackendTest, ChecksExpertsInEveryFormatAgainstTheirTrueWeights) {
  const Model model = SmallModel(AttentionKind::kGqa);
  const std::vector<float> bf16 = OutputOf(model, PlanOf({{"moe.weights", "bf16"}}));
  for (const char* const format : {"fp8_block", "int4_g32", "int4_g128", "nvfp4", "mxfp4"}) {
    // OutputOf() checks every op against the values that the format stores.
    const double distance = DistanceOf(OutputOf(model, PlanOf({{"moe.weights", format}})), bf16);
    EXPECT_GT(distance, 1e-3) << format << " did not run";
    EXPECT_LT(distance, 0.5) << format;
  }
}

TEST_F(CudaBackendTest, ChecksFp8ActivationsAgainstRoundedRows) {
  const Model model = SmallModel(AttentionKind::kGqa);
  const std::vector<float> bf16 = OutputOf(model, PlanOf({{"moe.weights", "fp8_block"}}));
  const Plan plan =
      PlanOf({{"moe.weights", "fp8_block"}, {"moe.activations", "fp8"}, {"launch.graph", "full"}});
  const double distance = DistanceOf(OutputOf(model, plan), bf16);
  EXPECT_GT(distance, 1e-3) << "did not run";
  EXPECT_LT(distance, 0.1);
}

TEST_F(CudaBackendTest, LeavesThePersistingLimitAsItWas) {
  const Plan plan = PlanOf({{"moe.l2_pin.share", "1"}});
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)));
  size_t before = 0;
  ASSERT_EQ(cudaDeviceGetLimit(&before, cudaLimitPersistingL2CacheSize), cudaSuccess);
  auto arm = backend->Prepare(plan, TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  ASSERT_TRUE((*arm)->Run().ok());
  size_t after = 1;
  ASSERT_EQ(cudaDeviceGetLimit(&after, cudaLimitPersistingL2CacheSize), cudaSuccess);
  EXPECT_EQ(after, before);
  EXPECT_NE((*arm)->effective_note().find("experts pinned"), std::string::npos);
}

TEST_F(CudaBackendTest, PinsPartOfAnExpertThatDoesNotFitAndSaysWhichPart) {
  Model model = SmallModel(AttentionKind::kGqa);
  model.hidden_size = 1024;
  model.moe_intermediate_size = 512;
  const auto backend = MakeBackend(TinyOptions(model));
  // An expert is 3 x 1024 x 512 weights of 4.5 bits, 0.885 MB.
  int persisting_max = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&persisting_max, cudaDevAttrMaxPersistingL2CacheSize, 0),
            cudaSuccess);
  const double share = 0.4e6 / persisting_max;
  const Plan plan = PlanOf({{"moe.l2_pin.share", absl::StrCat(share)}, {"launch.graph", "full"}});
  auto arm = backend->Prepare(plan, TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  ASSERT_TRUE((*arm)->Run().ok());
  const std::string note = (*arm)->effective_note();
  EXPECT_NE(note.find("windows of 0.88 MB (asked for 0.88) on 2 kernels, set-aside 0.40 MB, hit "
                      "ratio 0.452"),
            std::string::npos)
      << note;
  EXPECT_NE(note.find("2 kernels of the graph have a window"), std::string::npos) << note;
}

TEST_F(CudaBackendTest, BaselinesBeforeAndAfterAPinAgree) {
  Model model = SmallModel(AttentionKind::kGqa);
  model.hidden_size = 1024;
  model.moe_intermediate_size = 512;
  const auto backend = MakeBackend(TinyOptions(model));
  const Plan plain = PlanOf({{"launch.graph", "full"}});
  const Plan pinned = PlanOf({{"launch.graph", "full"}, {"moe.l2_pin.share", "1"}});
  ASSERT_TRUE(backend->StartAttempt(plain, pinned, TinyPoint(), *gang_).ok());
  auto baseline = backend->Prepare(plain, TinyPoint(), *gang_);
  auto variant = backend->Prepare(pinned, TinyPoint(), *gang_);
  ASSERT_TRUE(baseline.ok() && variant.ok()) << baseline.status() << variant.status();
  ASSERT_TRUE((*baseline)->SetDraw(kDraw).ok());
  ASSERT_TRUE((*variant)->SetDraw(kDraw).ok());
  MedianMicros(**baseline);  // Clocks.
  const double before = MedianMicros(**baseline);
  MedianMicros(**variant);
  EXPECT_NEAR(MedianMicros(**baseline) / before, 1, 0.05);
}

TEST_F(CudaBackendTest, WhatMakesTheCacheColdIsNotInTheTime) {
  Model model = SmallModel(AttentionKind::kGqa);
  model.num_layers = 1;
  model.layer_kinds = {LayerKind::kMoe};
  BackendOptions options = TinyOptions(model);
  options.experts_only = true;
  const auto backend = MakeBackend(options);
  auto arm = backend->Prepare(PlanOf({{"launch.graph", "full"}}), TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  EXPECT_NE((*arm)->effective_note().find("cold: other data is read through the L2"),
            std::string::npos)
      << (*arm)->effective_note();
  // Four small kernels take less than one read of twice the L2.
  int l2_bytes = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), cudaSuccess);
  constexpr double kBytesPerMicro = 4.9e6;
  EXPECT_LT(MedianMicros(**arm), 2.0 * l2_bytes / kBytesPerMicro);
  options.measure.warm = true;
  const auto warm = CudaBackend::Create(options);
  EXPECT_EQ(warm.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(warm.status().message().find("measure.warm"), absl::string_view::npos);
}

TEST_F(CudaBackendTest, TellsApartWhatACaptureCosts) {
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)));
  for (const char* const mode : {"none", "full"}) {
    auto arm = backend->Prepare(PlanOf({{"launch.graph", mode}}), TinyPoint(), *gang_);
    ASSERT_TRUE(arm.ok()) << arm.status();
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    ASSERT_TRUE(timing.ok()) << timing.status();
    if (std::string(mode) == "none") {
      EXPECT_LT((*arm)->capture_us(), 10);  // Looking at what there is to capture.
    } else {
      EXPECT_GT((*arm)->capture_us(), 0);
      // Capturing some forty launches takes longer than running them as a graph.
      EXPECT_LT(timing->us, (*arm)->capture_us());
    }
  }
}

TEST_F(CudaBackendTest, NamesWhatItCannotHonour) {
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)));
  for (const Fields& fields : std::vector<Fields>{
           {{"launch.steps", "2"}},
           {{"moe.kernel", "cutlass"}},
           {{"moe.cache_hint", "evict_first"}, {"moe.kernel", "cublaslt"}, {"moe.weights", "bf16"}},
           {{"overlap", "two_batch"}},
           {{"moe.activations", "fp8"}},
           {{"moe.weights", "int4_g32_24"}}}) {
    const auto arm = backend->Prepare(PlanOf(fields), TinyPoint(), *gang_);
    EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented) << arm.status();
    EXPECT_NE(arm.status().message().find(fields[0].first), absl::string_view::npos)
        << arm.status();
  }
}

TEST_F(CudaBackendTest, GivesTheCpuBackendsOutputByPaddedExperts) {
  const Plan plain = PlanOf({{"moe.weights", "bf16"}});
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = SmallModel(kind);
    for (const int64_t batch : {1, 6, 37}) {
      const Point point = TinyPoint(batch);
      const std::vector<float> wanted = CpuOutputOf(model, plain, point);
      for (const char* const graph : {"none", "full"}) {
        const Plan plan =
            PlanOf({{"moe.weights", "bf16"}, {"moe.kernel", "cublaslt"}, {"launch.graph", graph}});
        EXPECT_LT(DistanceOf(OutputOf(model, plan, point), wanted), kMostDistance)
            << ToWord(kind) << " batch " << batch << " graph " << graph;
      }
    }
  }
}

TEST_F(CudaBackendTest, MeasuresOneRankOfManyAndModelsTheRest) {
  BackendOptions options = TinyOptions(SmallModel(AttentionKind::kGqa));
  options.shard = true;
  options.machine.link_gb_per_s = 100;
  options.machine.collective_latency_us = 1000;
  const auto backend = MakeBackend(options);
  const Plan plan =
      PlanOf({{"parallel.tensor", "2"}, {"parallel.expert", "2"}, {"launch.graph", "full"}});
  auto arm = backend->Prepare(plan, TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  const auto check = (*arm)->Check(kDraw);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->ok) << check->detail;
  const auto timing = (*arm)->Run();
  ASSERT_TRUE(timing.ok()) << timing.status();
  // Two all-reduces a layer in three layers, and the exchange of sampling.
  EXPECT_GT(timing->us, 7 * 1000.0);
  EXPECT_NE((*arm)->effective_note().find("modelled"), std::string::npos);
}

TEST_F(CudaBackendTest, MeasuresOneRankOfDataAttentionWithTheTokensOfAllRanks) {
  BackendOptions options = TinyOptions(SmallModel(AttentionKind::kMla));
  options.shard = true;
  options.machine.link_gb_per_s = 100;
  options.machine.collective_latency_us = 1000;
  const auto backend = MakeBackend(options);
  const Point point = TinyPoint(24);
  for (const char* const kernel : {"grouped", "fused", "cublaslt"}) {
    const bool is_padded = std::string(kernel) == "cublaslt";
    const Plan plan = PlanOf({{"moe.weights", is_padded ? "bf16" : "model"},
                              {"parallel.data", "4"},
                              {"parallel.expert", "4"},
                              {"parallel.attention", "data"},
                              {"moe.kernel", kernel},
                              {"launch.graph", "full"}});
    auto arm = backend->Prepare(plan, point, *gang_);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(kDraw);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->detail;
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    ASSERT_TRUE(timing.ok()) << timing.status();
    // A dispatch and a combine in each of two MoE layers.
    EXPECT_GT(timing->us, 4 * 1000.0);
    // Of the 48 pairs of 24 tokens, top 2, the most loaded rank of four has more than a fourth.
    EXPECT_GE((*arm)->load().pairs, 12);
    EXPECT_GT((*arm)->imbalance(), 1);
    EXPECT_NE((*arm)->effective_note().find("routed as all ranks' tokens"), std::string::npos);
  }
}

TEST_F(CudaBackendTest, RefusesForOneRankOfManyWhatItsModelOfCollectivesDoesNotKnow) {
  BackendOptions options = TinyOptions(SmallModel(AttentionKind::kGqa));
  options.shard = true;
  options.machine.link_gb_per_s = 100;
  options.machine.collective_latency_us = 10;
  const auto backend = MakeBackend(options);
  const std::vector<std::pair<std::string, std::string>> choices = {
      {"collectives.all_reduce", "one_shot"}, {"collectives.all_reduce", "two_shot"}};
  for (const auto& [field, value] : choices) {
    const auto arm =
        backend->Prepare(PlanOf({{"parallel.tensor", "2"}, {field, value}}), TinyPoint(), *gang_);
    EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented) << value;
    EXPECT_NE(std::string(arm.status().message()).find(field), std::string::npos);
  }
  const auto arm = backend->Prepare(PlanOf({{"parallel.tensor", "2"},
                                            {"parallel.expert", "2"},
                                            {"parallel.attention", "data"},
                                            {"collectives.all_to_all", "nccl"}}),
                                    TinyPoint(), *gang_);
  EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(arm.status().message()).find("collectives.all_to_all"), std::string::npos);
}

TEST_F(CudaBackendTest, ClosesTheBreakdownToTheStep) {
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kMla)));
  auto arm = backend->Prepare(PlanOf({{"launch.graph", "full"}}), TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  const auto breakdown = (*arm)->MeasureBreakdown(3);
  ASSERT_TRUE(breakdown.ok()) << breakdown.status();
  double sum_us = 0;
  for (const BreakdownEntry& entry : breakdown->entries) {
    EXPECT_GE(entry.us, 0) << entry.op;
    sum_us += entry.us;
  }
  EXPECT_GT(breakdown->step_us, 0);
  EXPECT_NEAR(sum_us, breakdown->step_us, 0.02 * breakdown->step_us) << breakdown->method;
}

}  // namespace
}  // namespace lastflop
