// `lastflop kernels bench` on the CUDA backend.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "worker/cuda_backend.h"
#include "worker/kernel_bench.h"

namespace lastflop {
namespace {

// Experts of one rank of 2x2, which the CUDA backend times alone.
std::vector<KernelBenchRow> RowsOf(const Model& model, std::vector<int64_t> batches) {
  BackendOptions options = TinyOptions(model);
  options.experts_only = true;
  options.layers_kept = 2;
  KernelBenchRequest request;
  request.model = options.model;
  request.tensor = 2;
  request.expert = 2;
  request.batches = std::move(batches);
  request.samples = 3;
  Machine machine = options.machine;
  machine.backend = "cuda";
  const auto backend = CudaBackend::Create(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  if (!backend.ok()) {
    return {};
  }
  const auto rows = BenchKernels(request, machine, **backend);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.value_or(std::vector<KernelBenchRow>());
}

TEST(CudaKernelBenchTest, TimesExpertsAloneOfOneRankOfMany) {
  LASTFLOP_NEED_GPU();
  const std::vector<KernelBenchRow> rows = RowsOf(SmallModel(AttentionKind::kMla), {1, 6});
  ASSERT_EQ(rows.size(), 6u);
  for (const KernelBenchRow& row : rows) {
    if (row.kernel == "cublaslt") {
      EXPECT_NE(row.reason.find("reads bf16 experts; int4_g32 needs"), std::string::npos);
    }
    if (row.kernel == "grouped") {
      EXPECT_EQ(row.reason, "");
      EXPECT_GT(row.us.value_or(0), 0);
    }
    EXPECT_EQ(row.us.has_value(), row.reason.empty()) << row.reason;
  }
}

TEST(CudaKernelBenchTest, TimesPaddedExpertsAloneAndSaysWhatPaddingCosts) {
  LASTFLOP_NEED_GPU();
  Model model = SmallModel(AttentionKind::kMla);
  model.experts = WeightStorage{};
  const std::vector<KernelBenchRow> rows = RowsOf(model, {6});
  ASSERT_EQ(rows.size(), 3u);
  const KernelBenchRow& row = rows.back();
  EXPECT_EQ(row.kernel, "cublaslt");
  EXPECT_EQ(row.reason, "");
  EXPECT_GT(row.us.value_or(0), 0);
  // Eight experts of which two are chosen: four times the rows.
  EXPECT_NE(row.config.find("padded to 6 rows an expert"), std::string::npos) << row.config;
  EXPECT_NE(row.config.find("4 times the flop"), std::string::npos) << row.config;
}

}  // namespace
}  // namespace lastflop
