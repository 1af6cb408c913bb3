#include "kernels/grouped_gemm/grouped_gemm_cuda.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/fp4.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/quantize_rows/quantize_rows_cuda.h"
#include "kernels/tolerance.h"
#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

struct GemmCase {
  WeightFormat format = WeightFormat::kBf16;
  int tile = 8;
  int64_t rows = 64;
  int64_t cols = 256;
  int64_t tokens = 40;
  int64_t top_k = 2;
  int64_t experts = 7;
  bool gate_up = false;
  TileOrder order = TileOrder::kRowMajor;
  int64_t group_m = 0;
  CacheHint hint = CacheHint::kNone;
  int stages = 0;
  std::vector<int32_t> ids;  // Empty: random.

  std::string Name() const {
    return std::string(ToWord(format)) + " tile " + std::to_string(tile) + " [" +
           std::to_string(rows) + ", " + std::to_string(cols) + "] tokens " +
           std::to_string(tokens) + (gate_up ? " gate_up" : " down");
  }
};

void ExpectAsReference(const GemmCase& c) {
  SCOPED_TRACE(c.Name());
  const std::vector<int32_t> ids =
      c.ids.empty() ? RandomExperts(c.tokens, c.top_k, c.experts, 21) : c.ids;
  const RoutingCase routing(PermuteCase(c.tokens, c.top_k, c.experts, 0, c.experts), c.tile, ids);
  const int64_t slots = c.tokens * c.top_k;
  const CudaWeightSlice slice = SliceCase(c.format, c.experts, c.rows, c.cols, c.gate_up ? 2 : 1);
  const CudaRowOrder order = c.gate_up ? CudaRowOrder::kGateAndUp : CudaRowOrder::kPlain;
  DeviceArray<unsigned char> panels(PanelBytes(slice));
  LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, order, panels.get(), nullptr));
  const DeviceArray<__nv_bfloat16> in(
      RandomBf16(static_cast<size_t>((c.gate_up ? c.tokens : slots) * c.cols), 22));
  DeviceArray<__nv_bfloat16> out(slots * c.rows);
  DeviceArray<float> want(slots * c.rows);
  const ExpertGemmShape shape = {.num_tokens = c.tokens,
                                 .top_k = c.top_k,
                                 .num_local_experts = c.experts,
                                 .out_features = c.rows,
                                 .in_features = c.cols,
                                 .gather_tokens = c.gate_up,
                                 .storage = StorageOf(c.format),
                                 .tile_order = c.order,
                                 .group_m = c.group_m};
  LASTFLOP_EXPECT_OK(LaunchGroupedGemm(shape, routing.pairs, panels.get(), in.get(), out.get(),
                                       {.row_order = order,
                                        .cache_hint = c.hint,
                                        .stages = c.stages,
                                        .tensor_scale = Nvfp4TensorScale(slice.amplitude)},
                                       nullptr));
  LASTFLOP_EXPECT_OK(LaunchGroupedGemmReference(shape, routing.pairs, slice, in.get(), nullptr,
                                                c.rows, want.get(), nullptr));
  const std::vector<Bf16> got = out.Download<Bf16>();
  const std::vector<float> reference = want.Download();
  const auto used = static_cast<size_t>(routing.NumPairs() * c.rows);
  EXPECT_LE(RowError(std::span<const Bf16>(got).first(used),
                     std::span<const float>(reference).first(used), c.rows),
            Tolerance(1, c.cols));
  for (size_t i = used; i < got.size(); ++i) {
    ASSERT_EQ(got[i].bits, 0xFFFF) << "a row past the pairs was written";
  }
}

TEST(GroupedGemmCudaTest, AgreesWithTheReferenceInEveryFormatAndTile) {
  LASTFLOP_NEED_GPU();
  for (const WeightFormat format : kPanelFormats) {
    for (const int tile : {8, 16, 32, 64}) {
      ExpectAsReference({.format = format, .tile = tile, .rows = 512, .cols = 256, .tokens = 200});
      ExpectAsReference({.format = format,
                         .tile = tile,
                         .rows = 96,
                         .cols = 2176,
                         .tokens = 90,
                         .gate_up = true});
    }
  }
}

TEST(GroupedGemmCudaTest, TakesSizesThatNoTileDivides) {
  LASTFLOP_NEED_GPU();
  for (const int tile : {8, 16, 32, 64}) {
    // Features end inside a block of 64, rows inside an item.
    ExpectAsReference(
        {.format = WeightFormat::kBf16, .tile = tile, .rows = 48, .cols = 72, .tokens = 33});
    ExpectAsReference(
        {.format = WeightFormat::kInt4G32, .tile = tile, .rows = 336, .cols = 96, .tokens = 33});
    ExpectAsReference(
        {.format = WeightFormat::kInt4G32, .tile = tile, .rows = 208, .cols = 1056, .tokens = 33});
    ExpectAsReference(
        {.format = WeightFormat::kInt4G128, .tile = tile, .rows = 16, .cols = 1152, .tokens = 5});
    ExpectAsReference(
        {.format = WeightFormat::kBf16, .tile = tile, .rows = 112, .cols = 1480, .gate_up = true});
    ExpectAsReference({.format = WeightFormat::kFp8Block, .tile = tile, .rows = 144, .cols = 200});
    ExpectAsReference({.format = WeightFormat::kFp8Block, .tile = tile, .rows = 16, .cols = 1224});
    ExpectAsReference({.format = WeightFormat::kNvfp4, .tile = tile, .rows = 336, .cols = 80});
    ExpectAsReference({.format = WeightFormat::kNvfp4, .tile = tile, .rows = 48, .cols = 1072});
    ExpectAsReference({.format = WeightFormat::kMxfp4, .tile = tile, .rows = 48, .cols = 1056});
  }
}

TEST(GroupedGemmCudaTest, TakesExpertsWithoutTokensOneTokenAndAllTokens) {
  LASTFLOP_NEED_GPU();
  for (const int tile : {8, 64}) {
    ExpectAsReference({.format = WeightFormat::kInt4G32,
                       .tile = tile,
                       .tokens = 1,
                       .top_k = 1,
                       .experts = 9,
                       .ids = {6}});
    ExpectAsReference({.format = WeightFormat::kInt4G32,
                       .tile = tile,
                       .tokens = 300,
                       .top_k = 1,
                       .experts = 4,
                       .ids = std::vector<int32_t>(300, 2)});
    ExpectAsReference({.format = WeightFormat::kInt4G32,
                       .tile = tile,
                       .tokens = 4,
                       .top_k = 1,
                       .experts = 4,
                       .ids = std::vector<int32_t>(4, -1)});
  }
}

TEST(GroupedGemmCudaTest, GivesTheSameInEveryTileOrderHintAndDepth) {
  LASTFLOP_NEED_GPU();
  for (const WeightFormat format :
       {WeightFormat::kBf16, WeightFormat::kInt4G32, WeightFormat::kFp8Block}) {
    for (const CacheHint hint : {CacheHint::kEvictFirst, CacheHint::kEvictLast}) {
      ExpectAsReference({.format = format,
                         .tile = 8,
                         .rows = 512,
                         .tokens = 200,
                         .order = TileOrder::kColumnMajor,
                         .hint = hint});
    }
    for (const int64_t group_m : {1, 3, 100}) {
      ExpectAsReference({.format = format,
                         .tile = 16,
                         .rows = 1040,
                         .tokens = 300,
                         .group_m = group_m,
                         .stages = 2});
    }
  }
}

// Samples output features of a product that is too large to compute twice.
void ExpectSampled(const ExpertGemmShape& shape, const RoutingCase& routing,
                   const CudaWeightSlice& slice, CudaRowOrder order) {
  constexpr int64_t kSamples = 16;
  DeviceArray<unsigned char> panels(PanelBytes(slice));
  LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, order, panels.get(), nullptr));
  const int64_t slots = shape.num_tokens * shape.top_k;
  const int64_t in_rows = shape.gather_tokens ? shape.num_tokens : slots;
  // Random values from the weights' generator.
  CudaWeightSlice inputs;
  inputs.seed = 5;
  inputs.amplitude = 1.7f;
  inputs.rows_full = inputs.part_rows[0] = in_rows;
  inputs.cols_full = inputs.cols = shape.in_features;
  DeviceArray<__nv_bfloat16> in(in_rows * shape.in_features);
  LASTFLOP_EXPECT_OK(LaunchFillRows(inputs, in.get(), nullptr));
  DeviceArray<__nv_bfloat16> out(slots * shape.out_features);
  LASTFLOP_EXPECT_OK(LaunchGroupedGemm(shape, routing.pairs, panels.get(), in.get(), out.get(),
                                       {.row_order = order}, nullptr));
  // Features next to each other, so that one strided copy brings them here.
  const int64_t first = shape.out_features - kSamples;
  std::vector<int64_t> features;
  for (int64_t i = 0; i < kSamples; ++i) {
    features.push_back(first + i);
  }
  const DeviceArray<int64_t> device_features(features);
  DeviceArray<float> want(slots * kSamples);
  LASTFLOP_EXPECT_OK(LaunchGroupedGemmReference(
      shape, routing.pairs, slice, in.get(), device_features.get(), kSamples, want.get(), nullptr));
  const std::vector<float> reference = want.Download();
  std::vector<Bf16> got(static_cast<size_t>(slots * kSamples));
  LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy2D(got.data(), kSamples * 2, out.get() + first,
                                       static_cast<size_t>(shape.out_features) * 2, kSamples * 2,
                                       static_cast<size_t>(slots), cudaMemcpyDeviceToHost));
  EXPECT_LE(RowError(std::span<const Bf16>(got), reference, kSamples),
            4 * Tolerance(1, shape.in_features));
}

TEST(GroupedGemmCudaTest, ReachesExpertsWhoseOffsetPasses31Bits) {
  LASTFLOP_NEED_GPU();
  if (!HasMemory(int64_t{30} << 30)) {
    GTEST_SKIP() << "needs 30 GB of device memory";
  }
  for (const WeightFormat format :
       {WeightFormat::kBf16, WeightFormat::kInt4G32, WeightFormat::kFp8Block}) {
    SCOPED_TRACE(ToWord(format));
    // 384 experts of [4096, 7168]: element 2^31 is in expert 73.
    std::vector<int32_t> ids;
    for (int32_t expert = 70; expert < 384; expert += 4) {
      ids.push_back(expert);
    }
    const auto tokens = static_cast<int64_t>(ids.size());
    const RoutingCase routing(PermuteCase(tokens, 1, 384, 0, 384), 8, ids);
    ExpertGemmShape shape = {.num_tokens = tokens,
                             .top_k = 1,
                             .num_local_experts = 384,
                             .out_features = 4096,
                             .in_features = 7168,
                             .gather_tokens = true,
                             .storage = StorageOf(format)};
    ExpectSampled(shape, routing, SliceCase(format, 384, 4096, 7168, 2), CudaRowOrder::kGateAndUp);
  }
}

TEST(GroupedGemmCudaTest, WritesMoreThan31BitsOfOutput) {
  LASTFLOP_NEED_GPU();
  if (!HasMemory(int64_t{10} << 30)) {
    GTEST_SKIP() << "needs 10 GB of device memory";
  }
  // 37,450 tokens x top-8 x 7168 are 2^31 + 58,752 elements.
  constexpr int64_t kTokens = 37450;
  const RoutingCase routing(PermuteCase(kTokens, 8, 16, 0, 16), 64,
                            RandomExperts(kTokens, 8, 16, 31));
  const ExpertGemmShape shape = {.num_tokens = kTokens,
                                 .top_k = 8,
                                 .num_local_experts = 16,
                                 .out_features = 7168,
                                 .in_features = 256,
                                 .storage = StorageOf(WeightFormat::kInt4G32)};
  ExpectSampled(shape, routing, SliceCase(WeightFormat::kInt4G32, 16, 7168, 256, 1),
                CudaRowOrder::kPlain);
}

TEST(GroupedGemmCudaTest, ReadsRowsThatLieApart) {
  LASTFLOP_NEED_GPU();
  // A dense product: one expert, all tokens, rows of a wider tensor.
  constexpr int64_t kTokens = 21;
  constexpr int64_t kCols = 384;
  constexpr int64_t kStride = 520;
  const CudaWeightSlice slice = SliceCase(WeightFormat::kFp8Block, 1, 64, kCols, 1);
  DeviceArray<unsigned char> panels(PanelBytes(slice));
  LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, CudaRowOrder::kPlain, panels.get(), nullptr));
  const RoutingCase routing(PermuteCase(kTokens, 1, 1, 0, 1), 8, std::vector<int32_t>(kTokens, 0));
  const DeviceArray<__nv_bfloat16> in(RandomBf16(kTokens * kStride, 41));
  DeviceArray<__nv_bfloat16> out(kTokens * 64);
  DeviceArray<float> want(kTokens * 64);
  const ExpertGemmShape shape = {.num_tokens = kTokens,
                                 .top_k = 1,
                                 .num_local_experts = 1,
                                 .out_features = 64,
                                 .in_features = kCols,
                                 .storage = StorageOf(WeightFormat::kFp8Block)};
  LASTFLOP_EXPECT_OK(LaunchGroupedGemm(shape, routing.pairs, panels.get(), in.get(), out.get(),
                                       {.early_weights = true, .in_stride = kStride}, nullptr));
  LASTFLOP_EXPECT_OK(
      LaunchReferenceGemm(slice, 0, in.get(), kStride, kTokens, nullptr, 64, want.get(), nullptr));
  EXPECT_LE(RowError(std::span<const Bf16>(out.Download<Bf16>()), want.Download(), 64),
            Tolerance(1, kCols));
  EXPECT_EQ(CheckGroupedGemmCuda(shape, {.in_stride = 380}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(GroupedGemmCudaTest, MultipliesFp8RowsAsTheReferenceRoundsThem) {
  LASTFLOP_NEED_GPU();
  constexpr int64_t kExperts = 5;
  constexpr int64_t kTopK = 2;
  for (const int tile : {8, 16, 32, 64}) {
    for (const int64_t cols : {128, 256, 2176}) {
      SCOPED_TRACE(absl::StrCat("tile ", tile, " cols ", cols));
      constexpr int64_t kTokens = 70;
      constexpr int64_t kRows = 144;
      const PermuteShape permute = PermuteCase(kTokens, kTopK, kExperts, 0, kExperts);
      const std::vector<int32_t> ids = RandomExperts(kTokens, kTopK, kExperts, 61);
      const RoutingCase routing(permute, tile, ids);
      PairBuffer pairs(permute);
      PermuteReference(permute, ids, routing.host_weights, pairs.list());
      const CudaWeightSlice slice = SliceCase(WeightFormat::kFp8Block, kExperts, kRows, cols, 1);
      DeviceArray<unsigned char> panels(PanelBytes(slice));
      LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, CudaRowOrder::kPlain, panels.get(), nullptr));
      const std::vector<Bf16> in = RandomBf16(static_cast<size_t>(kTokens * kTopK * cols), 62);
      const DeviceArray<__nv_bfloat16> device_in(in);
      const ExpertGemmShape shape = {.num_tokens = kTokens,
                                     .top_k = kTopK,
                                     .num_local_experts = kExperts,
                                     .out_features = kRows,
                                     .in_features = cols,
                                     .storage = StorageOf(WeightFormat::kFp8Block),
                                     .activations = ActivationFormat::kFp8};
      const int64_t slots = kTokens * kTopK;
      DeviceArray<unsigned char> rows(slots * QuantizedRowBytes(cols));
      DeviceArray<__nv_bfloat16> out(slots * kRows);
      LASTFLOP_EXPECT_OK(LaunchQuantizeRows(slots, cols, routing.pairs.num_pairs(), device_in.get(),
                                            rows.get(), nullptr));
      LASTFLOP_EXPECT_OK(LaunchGroupedGemm(shape, routing.pairs, panels.get(), rows.get(),
                                           out.get(), {}, nullptr));
      std::vector<float> want(static_cast<size_t>(slots * kRows));
      const CpuCase cpu = CpuOf(slice);
      GroupedGemmReference(
          shape, pairs.list(),
          [&](int64_t matrix, int64_t row, std::span<float> values) {
            ReferenceWeightRow(cpu.slice, cpu.layout, matrix, row, values);
          },
          in, {}, want);
      EXPECT_LE(RowError(std::span<const Bf16>(out.Download<Bf16>()), want, kRows),
                Tolerance(1, cols));
    }
  }
}

TEST(GroupedGemmCudaTest, SaysWhatItHasNoBuildFor) {
  LASTFLOP_NEED_GPU();
  ExpertGemmShape shape = {.num_tokens = 1,
                           .top_k = 1,
                           .num_local_experts = 1,
                           .out_features = 64,
                           .in_features = 64,
                           .storage = StorageOf(WeightFormat::kInt4G32)};
  EXPECT_TRUE(CheckGroupedGemmCuda(shape, {}).ok());
  shape.in_features = 48;
  EXPECT_EQ(CheckGroupedGemmCuda(shape, {}).code(), absl::StatusCode::kInvalidArgument);
  shape.in_features = 64;
  shape.group_m = 2;
  shape.tile_order = TileOrder::kColumnMajor;
  EXPECT_EQ(CheckGroupedGemmCuda(shape, {}).code(), absl::StatusCode::kInvalidArgument);
  shape.group_m = 0;
  shape.storage.format = WeightFormat::kInt4G32Sparse24;
  EXPECT_EQ(CheckGroupedGemmCuda(shape, {}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lastflop
