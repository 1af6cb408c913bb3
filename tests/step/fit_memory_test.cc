#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

Point Decode(int64_t batch, int64_t context) {
  Point point;
  point.batch = batch;
  point.context = context;
  return point;
}

TEST(FitMemoryTest, KimiOnEightRanksFitsAnH200) {
  Plan plan;
  plan.parallel.tensor = 8;
  const MemoryFit fit = FitMemory(KimiModel(), plan, Decode(1, 4096), 0, 141e9);
  EXPECT_TRUE(fit.fits());
  // 60 layers of 384 experts of 3 H I b / 8 bytes are 71 GB; about 76 GB in all.
  EXPECT_NEAR(fit.weight_bytes, 76e9, 1.5e9);
  EXPECT_GT(fit.weight_bytes, 60 * 384 * 3.0 * 7168 * 2048 * 0.5625 / 8);
  EXPECT_NEAR(fit.cache_bytes, 61.0 * 4097 * 576 * 2, 1);
}

TEST(FitMemoryTest, NamesTheDevicesThatWouldDo) {
  const MemoryFit fit = FitMemory(KimiModel(), Plan{}, Decode(1, 4096), 0, 80 * kGib);
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(fit.devices_needed, 8);
  EXPECT_THAT(fit.Describe(),
              ::testing::MatchesRegex("needs [0-9.]+ GiB .weights [0-9.]+, cache [0-9.]+, "
                                      "workspace [0-9.]+. of 80.0 GiB"));
  const absl::Status status = CheckMemory(KimiModel(), Plan{}, Decode(1, 4096), 0, 80 * kGib);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("1 ranks together need as much as 7 have; it would fit at "
                                   "parallel.tensor=8"));
}

TEST(FitMemoryTest, SaysSmallSizesInMib) {
  const MemoryFit fit = FitMemory(QwenModel(), Plan{}, Decode(1, 16), 1, kGib / 1024);
  const MemoryFit small{.weight_bytes = 3 * kGib / 1024, .available_bytes = 2 * kGib / 1024};
  EXPECT_THAT(fit.Describe(), ::testing::HasSubstr("GiB")) << "a gibibyte and more is needed";
  EXPECT_EQ(small.Describe(), "needs 3.0 MiB (weights 3.0, cache 0.0, workspace 0.0) of 2.0 MiB");
}

TEST(FitMemoryTest, NoDegreeHelpsWhereNothingFits) {
  EXPECT_EQ(FitMemory(KimiModel(), Plan{}, Decode(1, 4096), 0, 1 * kGib).devices_needed, 0);
}

TEST(FitMemoryTest, CountsThePaddedRowsOfCublaslt) {
  Plan plan;
  const MemoryFit grouped = FitMemory(QwenModel(), plan, Decode(1024, 1), 1, 100 * kGib);
  plan.moe.kernel = MoeKernel::kCublaslt;
  const MemoryFit padded = FitMemory(QwenModel(), plan, Decode(1024, 1), 1, 100 * kGib);
  EXPECT_EQ(padded.weight_bytes, grouped.weight_bytes);
  // 128 experts of 1024 rows in, out and of 3 x 768 between them, bf16; the grouped kernel has
  // 8 x 1024 of 768 and out.
  EXPECT_NEAR(padded.workspace_bytes - grouped.workspace_bytes,
              128.0 * 1024 * (2 * 2048 + 3 * 768) * 2 - 8.0 * 1024 * (2048 + 768) * 2, 1);
}

TEST(FitMemoryTest, KeptLayersNeedLess) {
  const MemoryFit all = FitMemory(QwenModel(), Plan{}, Decode(1, 512), 0, 24 * kGib);
  const MemoryFit kept = FitMemory(QwenModel(), Plan{}, Decode(1, 512), 2, 24 * kGib);
  EXPECT_FALSE(all.fits());
  EXPECT_TRUE(kept.fits());
  EXPECT_NEAR(kept.cache_bytes, all.cache_bytes / 24, 1);
}

TEST(FitMemoryTest, TiedEmbeddingsAreHeldOnce) {
  Model model = QwenModel();
  const double untied = FitMemory(model, Plan{}, Decode(1, 1), 1, kGib).weight_bytes;
  model.tie_word_embeddings = true;
  EXPECT_DOUBLE_EQ(untied - FitMemory(model, Plan{}, Decode(1, 1), 1, kGib).weight_bytes,
                   2.0 * 151936 * 2048);
}

TEST(FitMemoryTest, AnInfeasiblePlanNeverFits) {
  Plan plan;
  plan.parallel.tensor = 3;
  EXPECT_FALSE(FitMemory(KimiModel(), plan, Decode(1, 1), 0, 1e18).fits());
}

}  // namespace
}  // namespace lastflop
