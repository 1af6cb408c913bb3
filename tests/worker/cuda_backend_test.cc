#include "worker/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "worker/kernel_bench.h"

namespace lastflop {
namespace {

constexpr int64_t kDraw = 5;

using Fields = std::vector<std::pair<std::string, std::string>>;

Plan PlanOf(const Fields& fields) {
  Plan plan;
  for (const auto& [path, value] : fields) {
    const absl::Status status = SetPlanField(path, value, plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  return plan;
}

// Widths that the panels of the CUDA kernels divide.
Model SmallModel(AttentionKind kind) {
  Model model = TinyModel(kind);
  model.hidden_size = 256;
  model.moe_intermediate_size = 128;
  return model;
}

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
  std::vector<float> OutputOf(const Model& model, const Plan& plan) {
    const auto backend = MakeBackend(TinyOptions(model));
    EXPECT_TRUE(backend->StartAttempt(plan, plan, TinyPoint(), *gang_).ok());
    auto arm = backend->Prepare(plan, TinyPoint(), *gang_);
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

  std::unique_ptr<Gang> gang_;
};

TEST_F(CudaBackendTest, GivesTheCpuBackendsOutputForEveryPlan) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = SmallModel(kind);
    const auto cpu = CpuBackend::Create(TinyOptions(model));
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    auto arm = (*cpu)->Prepare(Plan{}, TinyPoint(), *gang_);
    ASSERT_TRUE(arm.ok()) << arm.status();
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    ASSERT_TRUE((*arm)->Run().ok());
    const std::vector<float> wanted = *(*arm)->Output();
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
      ASSERT_EQ(output.size(), wanted.size());
      double error = 0;
      double norm = 0;
      for (size_t i = 0; i < output.size(); ++i) {
        error += (output[i] - wanted[i]) * (output[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
      }
      // bf16 activations, rounded at other places: a few units of 2^-8 over three layers.
      EXPECT_LT(std::sqrt(error / norm), 0.02)
          << ToWord(kind) << " " << (fields.empty() ? "baseline" : fields[0].first);
    }
  }
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

TEST_F(CudaBackendTest, NamesWhatItCannotHonour) {
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)));
  for (const Fields& fields : std::vector<Fields>{{{"launch.steps", "2"}},
                                                  {{"moe.kernel", "cutlass"}},
                                                  {{"overlap", "two_batch"}},
                                                  {{"moe.weights", "nvfp4"}}}) {
    const auto arm = backend->Prepare(PlanOf(fields), TinyPoint(), *gang_);
    EXPECT_EQ(arm.status().code(), absl::StatusCode::kUnimplemented) << arm.status();
    EXPECT_NE(arm.status().message().find(fields[0].first), absl::string_view::npos)
        << arm.status();
  }
}

TEST_F(CudaBackendTest, TimesExpertsAloneOfOneRankOfMany) {
  BackendOptions options = TinyOptions(SmallModel(AttentionKind::kMla));
  options.experts_only = true;
  options.layers_kept = 2;
  KernelBenchRequest request;
  request.model = options.model;
  request.tensor = 2;
  request.expert = 2;
  request.batches = {1, 6};
  request.samples = 3;
  Machine machine = options.machine;
  machine.backend = "cuda";
  const auto backend = MakeBackend(options);
  const auto rows = BenchKernels(request, machine, *backend);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 4u);
  for (const KernelBenchRow& row : *rows) {
    if (row.kernel == "grouped") {
      EXPECT_EQ(row.reason, "");
      EXPECT_GT(row.us.value_or(0), 0);
    }
    EXPECT_EQ(row.us.has_value(), row.reason.empty()) << row.reason;
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
