#include "kernels/attention/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cuda/compare_cuda.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

constexpr int kNumSms = 132;

AttentionShape Gqa(int64_t sequences, int64_t query_tokens, int64_t context, int64_t heads,
                   int64_t kv_heads, int64_t head_dim) {
  return {.kind = AttentionKind::kGqa,
          .num_sequences = sequences,
          .query_tokens = query_tokens,
          .context = context,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .softmax_scale = 1.0 / std::sqrt(static_cast<double>(head_dim))};
}

AttentionShape Mla(int64_t sequences, int64_t query_tokens, int64_t context, int64_t heads,
                   int64_t kv_lora_rank = 512, int64_t rope = 64) {
  return {.kind = AttentionKind::kMla,
          .num_sequences = sequences,
          .query_tokens = query_tokens,
          .context = context,
          .num_heads = heads,
          .num_kv_heads = 1,
          .kv_lora_rank = kv_lora_rank,
          .qk_rope_head_dim = rope,
          .softmax_scale = 0.05};
}

AttentionShape WithFp8(AttentionShape shape) {
  shape.cache = CacheFormat::kFp8;
  return shape;
}

std::string Describe(const AttentionShape& shape) {
  return absl::StrCat(ToWord(shape.kind), " ", ToWord(shape.cache),
                      " sequences=", shape.num_sequences, " query_tokens=", shape.query_tokens,
                      " context=", shape.context, " heads=", shape.num_heads, "/",
                      shape.num_kv_heads, " width=", WidthsOf(shape).value);
}

// As many random values as the cache has, in its format. Keys large enough for weights that differ.
std::vector<std::byte> RandomCache(const AttentionShape& shape, uint64_t seed, float amplitude) {
  const int64_t count = CacheElements(shape);
  std::vector<std::byte> cache(static_cast<size_t>(count * CacheElementBytes(shape.cache)));
  const std::vector<Bf16> random = RandomValues(count, seed, amplitude);
  for (size_t i = 0; i < random.size(); ++i) {
    if (shape.cache == CacheFormat::kFp8) {
      reinterpret_cast<Fp8*>(cache.data())[i] = ToFp8(ToFloat(random[i]));
    } else {
      reinterpret_cast<Bf16*>(cache.data())[i] = random[i];
    }
  }
  return cache;
}

int64_t NumTokens(const AttentionShape& shape) { return shape.num_sequences * shape.query_tokens; }

// Weights are rounded to bf16 before they multiply values, and the output once.
double Limit(const AttentionShape& shape) { return Tolerance(2, shape.context + 512) + 1e-5; }

// Random query and cache, on both sides.
struct Case {
  explicit Case(const AttentionShape& of)
      : shape(of),
        query(RandomValues(NumTokens(of) * WidthsOf(of).query_stride, 1, 3)),
        keys(RandomCache(of, 2, 3)),
        values(of.kind == AttentionKind::kGqa ? RandomCache(of, 3, 1) : std::vector<std::byte>()),
        device_query(query),
        device_keys(keys),
        device_values(values),
        out(NumTokens(of) * of.num_heads * WidthsOf(of).value),
        workspace(AttentionCudaWorkspaceBytes(of, kNumSms)) {}

  DeviceKvCache cache() const { return {device_keys.get(), device_values.get()}; }
  void Run() {
    LASTFLOP_EXPECT_OK(LaunchAttention(shape, kNumSms, device_query.get(), cache(), out.get(),
                                       workspace.get(), nullptr));
  }

  AttentionShape shape;
  std::vector<Bf16> query;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
  DeviceArray<__nv_bfloat16> device_query;
  DeviceArray<std::byte> device_keys;
  DeviceArray<std::byte> device_values;
  DeviceArray<__nv_bfloat16> out;
  DeviceArray<std::byte> workspace;
};

void ExpectAgreement(const AttentionShape& shape) {
  ASSERT_TRUE(CheckAttentionCuda(shape).ok()) << CheckAttentionCuda(shape);
  Case data(shape);
  data.Run();
  const int64_t width = WidthsOf(shape).value;
  std::vector<float> reference(static_cast<size_t>(data.out.count()));
  AttentionReference(shape, data.query, {data.keys, data.values}, {}, reference);
  EXPECT_LE(RowError(data.out.Download<Bf16>(), reference, width), Limit(shape)) << Describe(shape);
}

// Against the plain kernel on the device.
void ExpectAgreementAtSize(const AttentionShape& shape) {
  Case data(shape);
  data.Run();
  const int64_t width = WidthsOf(shape).value;
  const int64_t rows = NumTokens(shape) * shape.num_heads;
  DeviceArray<float> reference(data.out.count());
  DeviceArray<std::byte> compare(CompareWorkspaceBytes(rows));
  DeviceArray<CompareResult> result(1);
  LASTFLOP_EXPECT_OK(LaunchAttentionReference(shape, data.device_query.get(), data.cache(),
                                              reference.get(), nullptr));
  LASTFLOP_EXPECT_OK(LaunchCompare(data.out.get(), width, reference.get(), width, rows, width,
                                   result.get(), compare.get(), nullptr));
  const CompareResult got = result.Download()[0];
  EXPECT_LE(got.max_row_error, Limit(shape)) << Describe(shape) << " row " << got.worst_row;
  EXPECT_GT(got.rms_want, 0);
}

TEST(AttentionCudaTest, AgreesForGqaInSizesThatNoTileDivides) {
  LASTFLOP_NEED_GPU();
  ExpectAgreement(Gqa(1, 1, 0, 1, 1, 128));  // A first token sees itself only.
  ExpectAgreement(Gqa(1, 1, 1000, 8, 1, 128));
  ExpectAgreement(Gqa(3, 1, 77, 12, 3, 64));
  ExpectAgreement(Gqa(5, 1, 130, 32, 4, 128));
  ExpectAgreement(Gqa(2, 1, 300, 8, 8, 96));    // One query head a KV head.
  ExpectAgreement(Gqa(2, 1, 200, 40, 1, 128));  // More heads than a tile has rows.
  ExpectAgreement(Gqa(150, 1, 63, 4, 2, 64));   // Ranges of several groups.
}

TEST(AttentionCudaTest, AgreesForMlaInSizesThatNoTileDivides) {
  LASTFLOP_NEED_GPU();
  ExpectAgreement(Mla(1, 1, 0, 8));
  ExpectAgreement(Mla(1, 1, 1000, 8));
  ExpectAgreement(Mla(3, 1, 77, 5));
  ExpectAgreement(Mla(2, 1, 300, 40));   // Three tiles of rows.
  ExpectAgreement(Mla(150, 1, 100, 8));  // Ranges of several sequences.
  ExpectAgreement(Mla(7, 1, 200, 32));
}

TEST(AttentionCudaTest, AgreesWithAnFp8Cache) {
  LASTFLOP_NEED_GPU();
  ExpectAgreement(WithFp8(Gqa(1, 1, 500, 8, 1, 128)));
  ExpectAgreement(WithFp8(Gqa(3, 2, 77, 12, 3, 64)));
  ExpectAgreement(WithFp8(Gqa(2, 1, 77, 12, 3, 112)));
  ExpectAgreement(WithFp8(Mla(1, 1, 500, 8)));
  ExpectAgreement(WithFp8(Mla(3, 2, 77, 16)));
}

TEST(AttentionCudaTest, LetsANewTokenSeeItselfAndThoseBeforeIt) {
  LASTFLOP_NEED_GPU();
  ExpectAgreement(Gqa(2, 4, 100, 32, 4, 128));  // Speculative verification.
  ExpectAgreement(Gqa(1, 97, 0, 8, 2, 128));    // A prompt.
  ExpectAgreement(Gqa(2, 70, 33, 8, 8, 64));
  ExpectAgreement(Mla(2, 4, 100, 8));
  ExpectAgreement(Mla(1, 90, 0, 8));
  ExpectAgreement(Mla(2, 3, 60, 8));  // Rows of the last tile of rows that are none.
}

TEST(AttentionCudaTest, TakesWidthsWithoutABuildOfTheirOwn) {
  LASTFLOP_NEED_GPU();
  ExpectAgreement(Gqa(2, 2, 150, 4, 2, 20));
  ExpectAgreement(Gqa(2, 1, 150, 4, 2, 256));
  ExpectAgreement(Mla(2, 2, 150, 4, 48, 16));
  ExpectAgreement(WithFp8(Mla(2, 2, 150, 4, 48, 16)));
}

TEST(AttentionCudaTest, AgreesAtTheSizesOfServing) {
  LASTFLOP_NEED_GPU();
  ExpectAgreementAtSize(Mla(16, 1, 4096, 8));
  ExpectAgreementAtSize(Gqa(16, 1, 4096, 32, 4, 128));
  ExpectAgreementAtSize(Mla(1, 1, 32768, 8));
  ExpectAgreementAtSize(Gqa(1, 2048, 0, 8, 1, 128));
}

TEST(AttentionCudaTest, ReadsNothingPastTheNewTokensAndGivesTheSameTwice) {
  LASTFLOP_NEED_GPU();
  for (const AttentionShape& shape : {Mla(3, 1, 100, 8), Gqa(3, 1, 100, 16, 2, 128)}) {
    Case data(shape);
    data.Run();
    const std::vector<Bf16> first = data.out.Download<Bf16>();
    // A workspace of NaN, and an output that must be written throughout.
    LASTFLOP_EXPECT_OK(
        LaunchPoison(data.workspace.get(), static_cast<int64_t>(data.workspace.bytes()), nullptr));
    LASTFLOP_EXPECT_OK(
        LaunchPoison(data.out.get(), static_cast<int64_t>(data.out.bytes()), nullptr));
    data.Run();
    EXPECT_EQ(data.out.Download<Bf16>(), first) << Describe(shape);
  }
}

TEST(AttentionCudaTest, DoesNothingWithoutSequencesAndRefusesWhatDoesNotDivide) {
  EXPECT_EQ(AttentionCudaWorkspaceBytes(Mla(0, 1, 10, 8), kNumSms), 0);
  EXPECT_TRUE(
      LaunchAttention(Mla(0, 1, 10, 8), kNumSms, nullptr, {}, nullptr, nullptr, nullptr).ok());
  EXPECT_EQ(CheckAttentionCuda(Gqa(1, 1, 10, 8, 3, 128)).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
