// What the fit counts, against what a GPU then has in use.
#include "worker/cuda_step_memory.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/panel.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plan_fields.h"
#include "worker/cuda_backend.h"

namespace lastflop {
namespace {

constexpr int64_t kDraw = 5;

// Of a gigabyte and more, so that what nobody counts (code, graphs, the blocks that allocations are
// rounded to) is small beside it.
Model WideModel(AttentionKind kind) {
  Model model = SmallModel(kind);
  model.hidden_size = 2048;
  model.num_experts = 64;
  model.moe_intermediate_size = 1024;
  model.vocab_size = 32'000;
  return model;
}

// What decides how many layers are kept is what the device then has less of.
TEST(CudaStepMemoryTest, CountsTheMemoryThatAStepTakes) {
  LASTFLOP_NEED_GPU();
  const auto gang = *JoinGang("", 0, 1, std::chrono::seconds(10));
  constexpr double kMib = 1 << 20;
  Point point = TinyPoint();
  point.batch = 256;
  point.context = 2048;
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = WideModel(kind);
    for (const Fields& fields : std::vector<Fields>{{},
                                                    {{"moe.weights", "bf16"}},
                                                    {{"launch.graph", "full"}},
                                                    {{"moe.dequant", "separate"}},
                                                    {{"attention.cache", "fp8"}},
                                                    {{"decode.speculative.draft_tokens", "2"},
                                                     {"decode.speculative.acceptance", "0.7"}}}) {
      const Plan plan = PlanOf(fields);
      const std::string name =
          absl::StrCat(ToWord(kind), " ", fields.empty() ? "baseline" : fields[0].first);
      const BackendOptions options = TinyOptions(model);
      const auto created = CudaBackend::Create(options);
      ASSERT_TRUE(created.ok()) << created.status();
      const auto& backend = *created;
      ASSERT_TRUE(backend->StartAttempt(plan, plan, point, *gang).ok()) << name;
      size_t before = 0;
      size_t after = 0;
      size_t total = 0;
      ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
      const auto arm = backend->Prepare(plan, point, *gang);
      ASSERT_TRUE(arm.ok()) << name << ": " << arm.status();
      ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
      ASSERT_TRUE((*arm)->Run().ok());
      ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
      cudaDeviceProp properties{};
      ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
      const auto memory = MemoryOf({.model = model,
                                    .plan = plan,
                                    .point = point,
                                    .rank = 0,
                                    .shard = false,
                                    .layers_kept = options.layers_kept,
                                    .experts_only = false,
                                    .data = {}},
                                   properties.multiProcessorCount);
      ASSERT_TRUE(memory.ok()) << memory.status();
      double counted = memory->own_bytes;
      for (const auto& [key, bytes] : memory->shared) {
        counted += bytes;
      }
      const double used = static_cast<double>(before) - static_cast<double>(after);
      RecordProperty(name, absl::StrCat("counted ", counted / kMib, " MiB, in use ", used / kMib));
      EXPECT_GT(counted, 100 * kMib) << name;
      EXPECT_GT(used, 0.97 * counted) << name << ": " << counted / kMib << " MiB are counted";
      EXPECT_LT(used, counted + 400 * kMib) << name << ": " << counted / kMib << " MiB are counted";
    }
  }
}

// Without a GPU: panels of fp8 have a scale for 16 rows where weights have one for 128.
TEST(CudaStepMemoryTest, CountsWhatPanelsTakeBeyondTheirWeights) {
  const Model model = WideModel(AttentionKind::kGqa);
  const Point point = TinyPoint();
  const auto memory_of = [&](const Fields& fields) {
    const Plan plan = PlanOf(fields);
    const auto memory = MemoryOf({.model = model,
                                  .plan = plan,
                                  .point = point,
                                  .rank = 0,
                                  .shard = false,
                                  .layers_kept = 0,
                                  .experts_only = false,
                                  .data = {}},
                                 /*num_sms=*/132);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.value_or(CudaStepMemory{});
  };
  const auto experts_bytes = [](const CudaStepMemory& memory) {
    double bytes = 0;
    for (const auto& [key, of_key] : memory.shared) {
      bytes += key.find("fp8_block") != std::string::npos ? of_key : 0;
    }
    return bytes;
  };
  const CudaStepMemory fp8 = memory_of({{"moe.weights", "fp8_block"}});
  const auto num_layers = static_cast<double>(model.num_moe_layers());
  const double panels =
      num_layers * static_cast<double>(model.num_experts) *
      static_cast<double>(PanelBytesOfMatrix(WeightFormat::kFp8Block,
                                             2 * model.moe_intermediate_size, model.hidden_size) +
                          PanelBytesOfMatrix(WeightFormat::kFp8Block, model.hidden_size,
                                             model.moe_intermediate_size));
  EXPECT_DOUBLE_EQ(experts_bytes(fp8), panels);
  EXPECT_NEAR(fp8.panel_bytes, panels * (1 - 2048.0 / 2064), 1);
  EXPECT_EQ(memory_of({{"moe.weights", "int4_g32"}}).panel_bytes, 0);
}

}  // namespace
}  // namespace lastflop
