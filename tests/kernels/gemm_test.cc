#include "kernels/gemm/gemm.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/weights_random.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One packed matrix.
struct Matrix {
  PackedLayout layout;
  AlignedBuffer data;
  PackedWeights view() const { return {.layout = &layout, .data = data.data()}; }
};

Matrix Pack(const GemmShape& shape, std::span<const float> values) {
  Matrix matrix;
  matrix.layout =
      PackedLayout::Create(shape.storage, 1, {shape.out_features}, shape.in_features).value();
  matrix.data = AlignedBuffer::Create(matrix.layout.bytes()).value();
  PackMatrix(matrix.layout, 0, values, matrix.data.data());
  return matrix;
}

// Runs kernel and reference; both as fp32.
struct Results {
  std::vector<float> out;
  std::vector<float> reference;
};
Results RunBoth(const GemmShape& shape, const Matrix& matrix, std::span<const Bf16> in,
                std::span<const Bf16> bias, ThreadPool& pool) {
  Results results;
  const int64_t count = shape.num_tokens * shape.out_features;
  results.reference.resize(static_cast<size_t>(count));
  GemmReference(
      shape,
      [&](int64_t m, int64_t row, std::span<float> out) { UnpackRow(matrix.view(), m, row, out); },
      in, bias, {}, results.reference);
  AlignedBuffer workspace =
      AlignedBuffer::Create(static_cast<size_t>(GemmWorkspaceBytes(shape, matrix.layout))).value();
  const std::span<std::byte> bytes = workspace.As<std::byte>(workspace.bytes());
  if (shape.fp32_out) {
    results.out.assign(static_cast<size_t>(count), NAN);
    Gemm(shape, matrix.view(), in, bias, std::span<float>(results.out), bytes, pool);
  } else {
    std::vector<Bf16> out = Poison(count);
    Gemm(shape, matrix.view(), in, bias, std::span<Bf16>(out), bytes, pool);
    results.out = Floats(out);
  }
  return results;
}

TEST(GemmTest, MultipliesRowsWithRowsByHand) {
  const GemmShape shape = {.num_tokens = 2, .out_features = 2, .in_features = 2, .bias = true};
  const std::vector<float> weights = {1, 2, 3, 4};
  std::vector<float> out(4);
  GemmReference(
      shape,
      [&](int64_t, int64_t row, std::span<float> to) {
        to[0] = weights[static_cast<size_t>(row * 2)];
        to[1] = weights[static_cast<size_t>(row * 2 + 1)];
      },
      Bf16s({1, 1, 0, 2}), Bf16s({10, 20}), {}, out);
  EXPECT_THAT(out, ElementsAre(13, 27, 14, 28));
}

struct Sizes {
  int64_t num_tokens;
  int64_t out_features;
  int64_t in_features;
};
constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 48, 64},   {2, 17, 31},    {3, 129, 96}, {6, 33, 256},
                            {7, 16, 128}, {64, 40, 130}, {200, 20, 384}, {0, 16, 32}};

TEST(GemmTest, IsExactOnSmallIntegersInEveryBuildAndSize) {
  for (const NamedPool& named : EveryPool()) {
    for (const Sizes& sizes : kSizes) {
      for (const bool fp32_out : {false, true}) {
        GemmShape shape = {.num_tokens = sizes.num_tokens,
                           .out_features = sizes.out_features,
                           .in_features = sizes.in_features,
                           .bias = true,
                           .fp32_out = true};
        // bf16 holds whole numbers up to 256: sums are kept below that by few non-zero inputs.
        std::vector<Bf16> in = SmallIntegers(sizes.num_tokens * sizes.in_features, 1, 2);
        if (!fp32_out) {
          shape.fp32_out = false;
          for (size_t i = 0; i < in.size(); ++i) {
            in[i] = i % 16 == 0 ? in[i] : Bf16{};
          }
        }
        const std::vector<Bf16> weights =
            SmallIntegers(sizes.out_features * sizes.in_features, 2, 3);
        const std::vector<Bf16> bias = SmallIntegers(sizes.out_features, 3, 9);
        const Results results = RunBoth(shape, Pack(shape, Floats(weights)), in, bias, *named.pool);
        EXPECT_EQ(results.out, results.reference)
            << named.name << " m=" << sizes.num_tokens << " n=" << sizes.out_features
            << " k=" << sizes.in_features;
      }
    }
  }
}

TEST(GemmTest, AgreesWithItsReferenceOnRandomInputInEveryFormat) {
  for (const NamedPool& named : EveryPool()) {
    for (const WeightFormat format :
         {WeightFormat::kBf16, WeightFormat::kFp8Block, WeightFormat::kFp8, WeightFormat::kInt4G32,
          WeightFormat::kInt4G128}) {
      for (const int64_t num_tokens : {1, 5, 16, 33}) {
        const GemmShape shape = {.num_tokens = num_tokens,
                                 .out_features = 150,
                                 .in_features = 384,
                                 .storage = StorageOf(format),
                                 .bias = num_tokens == 5};
        const std::vector<Bf16> weights = RandomValues(150 * 384, 2, 0.1f);
        const std::vector<Bf16> in = RandomValues(num_tokens * 384, 1);
        const Results results =
            RunBoth(shape, Pack(shape, Floats(weights)), in, RandomValues(150, 3), *named.pool);
        EXPECT_LE(RowError(results.out, results.reference, 150), Tolerance(1, 384))
            << named.name << " " << ToWord(format) << " tokens=" << num_tokens;
      }
    }
  }
}

TEST(GemmTest, ReadsRowsAtAnOffsetAndAPitch) {
  for (const NamedPool& named : EveryPool()) {
    const GemmShape shape = {
        .num_tokens = 3, .out_features = 20, .in_features = 40, .in_stride = 57, .in_offset = 11};
    const std::vector<Bf16> in = RandomValues(11 + 3 * 57, 1);
    const Results results =
        RunBoth(shape, Pack(shape, Floats(RandomValues(800, 2))), in, {}, *named.pool);
    EXPECT_LE(RowError(results.out, results.reference, 20), Tolerance(1, 40)) << named.name;
  }
}

TEST(GemmTest, ReferenceComputesASampleOfTheOutputFeatures) {
  const GemmShape shape = {.num_tokens = 2, .out_features = 30, .in_features = 8};
  const Matrix matrix = Pack(shape, Floats(RandomValues(240, 1)));
  const auto rows = [&](int64_t m, int64_t row, std::span<float> out) {
    UnpackRow(matrix.view(), m, row, out);
  };
  const std::vector<Bf16> in = RandomValues(16, 2);
  std::vector<float> all(60);
  std::vector<float> some(4);
  GemmReference(shape, rows, in, {}, {}, all);
  GemmReference(shape, rows, in, {}, std::vector<int64_t>{29, 3}, some);
  EXPECT_THAT(some, ElementsAre(all[29], all[3], all[59], all[33]));
}

TEST(GemmTest, RefusesFormatsThatTheCpuHasNot) {
  GemmShape shape = {.num_tokens = 1, .out_features = 4, .in_features = 32};
  EXPECT_TRUE(ValidateGemm(shape).ok());
  shape.storage.format = WeightFormat::kNvfp4;
  const absl::Status status = ValidateGemm(shape);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("nvfp4"));
  EXPECT_EQ(ValidateGemm({.num_tokens = 1, .out_features = 0, .in_features = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      ValidateGemm({.num_tokens = 1, .out_features = 1, .in_features = 8, .in_stride = 4}).code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
