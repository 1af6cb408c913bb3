#include "worker/kernel_bench.h"

#include <cmath>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/fake_backend.h"

namespace lastflop {
namespace {

KernelBenchRequest RequestOf(const Model& model) {
  KernelBenchRequest request;
  request.model = model;
  request.batches = {1, 6};
  request.samples = 3;
  request.device = "cpu:0";
  return request;
}

Machine FlatMachine() {
  Machine machine;
  machine.l2_bytes = 1 << 20;
  machine.cold_read = {{.bytes = 1e3, .us = 1e-3}, {.bytes = 1e6, .us = 1}};  // 1 TB/s.
  return machine;
}

absl::StatusOr<std::vector<KernelBenchRow>> RowsOnCpu(const KernelBenchRequest& request) {
  BackendOptions options = TinyOptions(request.model);
  options.layers_kept = 2;
  options.experts_only = true;
  options.most_loaded = request.most_loaded;
  auto backend = CpuBackend::Create(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return BenchKernels(request, FlatMachine(), **backend);
}

TEST(KernelBenchTest, TimesAndChecksEveryKernelAtEveryBatch) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const auto rows = RowsOnCpu(RequestOf(TinyModel(kind)));
    ASSERT_TRUE(rows.ok()) << rows.status();
    ASSERT_EQ(rows->size(), 4u);
    for (const KernelBenchRow& row : *rows) {
      EXPECT_EQ(row.reason, "") << row.kernel;
      ASSERT_TRUE(row.us.has_value());
      EXPECT_GT(*row.us, 0);
      EXPECT_LT(*row.error, 0.02);
      EXPECT_DOUBLE_EQ(*row.pairs, 2.0 * static_cast<double>(row.batch));
      EXPECT_GT(*row.floor_us, 0);
      EXPECT_EQ(row.ops.size(), row.kernel == "grouped" ? 4u : 2u);
      EXPECT_NEAR(*row.read_share, *row.floor_us / *row.us, 1e-9);
    }
    EXPECT_DOUBLE_EQ(*(*rows)[0].unique_experts, 2);
    // Three products of 64 x 64 weights of 4.5 bits for each expert touched, at 1 TB/s.
    EXPECT_NEAR(*(*rows)[0].floor_us, 2 * 3 * 64 * 64 * 0.5625 * 1e-6, 1e-6);
  }
}

TEST(KernelBenchTest, TimesOneRankOfManyWithItsShareOrTheLargest) {
  KernelBenchRequest request = RequestOf(TinyModel(AttentionKind::kGqa));
  request.tensor = 4;
  request.expert = 4;
  request.batches = {3};
  const auto mean = RowsOnCpu(request);
  request.most_loaded = true;
  const auto most = RowsOnCpu(request);
  ASSERT_TRUE(mean.ok()) << mean.status();
  ASSERT_TRUE(most.ok()) << most.status();
  // Six pairs over four ranks of two experts each: the most loaded rank has two at least.
  EXPECT_GE(*(*most)[0].pairs, 2);
  EXPECT_GE(*(*most)[0].unique_experts, *(*mean)[0].unique_experts);
  EXPECT_LE(*(*most)[0].unique_experts, 2);
  EXPECT_EQ((*most)[0].reason, "");
}

TEST(KernelBenchTest, SaysWhyAKernelDoesNotRunAndGoesOn) {
  FakeBackend backend;
  backend.script = [](const Plan& plan) {
    FakeArmScript script;
    if (plan.moe.kernel == MoeKernel::kFused) {
      script.prepare = absl::UnimplementedError("needs 147456 B, the device has 101376");
    }
    return script;
  };
  const auto rows = BenchKernels(RequestOf(TinyModel(AttentionKind::kGqa)), FlatMachine(), backend);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 4u);
  EXPECT_TRUE((*rows)[2].us.has_value());
  EXPECT_FALSE((*rows)[3].us.has_value());
  EXPECT_EQ((*rows)[3].reason, "needs 147456 B, the device has 101376");
}

// Clocks and throttling are of a row: the last one may be one that did not run.
TEST(KernelBenchTest, GivesEachRowWhatTheDeviceSaidWhileItRan) {
  FakeBackend backend;
  backend.script = [](const Plan& plan) {
    FakeArmScript script;
    if (plan.moe.kernel == MoeKernel::kFused) {
      script.prepare = absl::UnimplementedError("does not fit");
    }
    return script;
  };
  const auto rows = BenchKernels(RequestOf(TinyModel(AttentionKind::kGqa)), FlatMachine(), backend);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const KernelBenchRow& row : *rows) {
    if (!row.us.has_value()) {
      EXPECT_TRUE(row.environment.empty()) << row.kernel;
      continue;
    }
    ASSERT_EQ(row.environment.size(), 1u) << row.kernel;  // What was so before any ran is left out.
    EXPECT_EQ(row.environment[0].first, "runs");
  }
}

TEST(KernelBenchTest, SaysWhereOpsAddUpToMoreThanTheWhole) {
  const Model model = TinyModel(AttentionKind::kGqa);  // Three layers.
  for (const auto& [moe_us, is_told] : {std::pair(90.0, false), {400.0, true}}) {
    FakeBackend backend;
    backend.script = [us = moe_us](const Plan&) { return FakeArmScript{.moe_us = us}; };
    const auto rows = BenchKernels(RequestOf(model), FlatMachine(), backend);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ((*rows)[0].config.find("ops add up to 4.0 times") != std::string::npos, is_told)
        << (*rows)[0].config;
  }
}

TEST(KernelBenchTest, GivesNoTimeOfAWrongOrAnImpossiblyFastKernel) {
  FakeBackend backend;
  backend.script = [](const Plan& plan) {
    FakeArmScript script;
    if (plan.moe.kernel == MoeKernel::kFused) {
      script.check_ok = false;
    } else {
      script.least_possible_us = 2 * script.us;
    }
    return script;
  };
  const auto rows = BenchKernels(RequestOf(TinyModel(AttentionKind::kGqa)), FlatMachine(), backend);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const KernelBenchRow& row : *rows) {
    EXPECT_FALSE(row.us.has_value()) << row.kernel;
    EXPECT_NE(row.reason, "") << row.kernel;
  }
}

TEST(KernelBenchTest, EndsWhereTheDeviceFails) {
  FakeBackend backend;
  backend.script = [](const Plan&) {
    return FakeArmScript{.run = absl::InternalError("an illegal memory access")};
  };
  const auto rows = BenchKernels(RequestOf(TinyModel(AttentionKind::kGqa)), FlatMachine(), backend);
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInternal);
}

TEST(KernelBenchTest, RequestAndResultSurviveTheWayBetweenProcesses) {
  KernelBenchRequest request = RequestOf(TinyModel(AttentionKind::kMla));
  request.weights = WeightFormat::kInt4G128;
  request.routing.distribution = Distribution::kZipf;
  const auto read = KernelBenchRequestFromJson(ToJson(request));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(request));
  EXPECT_EQ(read->weights, WeightFormat::kInt4G128);

  KernelBenchResult result;
  result.environment = {{"gpu", "NVIDIA H200"}};
  result.rows = {{.kernel = "grouped", .batch = 4, .us = 12.5}, {.kernel = "fused", .reason = "x"}};
  const auto answered = KernelBenchResultFromJson(ToJson(result));
  ASSERT_TRUE(answered.ok()) << answered.status();
  EXPECT_EQ(answered->rows[0].us, 12.5);
  EXPECT_FALSE(answered->rows[1].us.has_value());
  EXPECT_EQ(answered->environment[0].second, "NVIDIA H200");
}

}  // namespace
}  // namespace lastflop
