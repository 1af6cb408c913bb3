#include "kernels/attention/attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/fp8.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

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
                   int64_t kv_lora_rank, int64_t rope) {
  return {.kind = AttentionKind::kMla,
          .num_sequences = sequences,
          .query_tokens = query_tokens,
          .context = context,
          .num_heads = heads,
          .num_kv_heads = 1,
          .kv_lora_rank = kv_lora_rank,
          .qk_rope_head_dim = rope,
          .softmax_scale = 0.1};
}

// Query and a full cache, random. Keys are large enough for weights that differ.
struct Case {
  AttentionShape shape;
  std::vector<Bf16> query;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
  KvCache cache() { return {keys, values}; }
};

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

Case MakeCase(const AttentionShape& shape) {
  const int64_t tokens = shape.num_sequences * shape.query_tokens;
  return {.shape = shape,
          .query = RandomValues(tokens * WidthsOf(shape).query_stride, 1, 3),
          .keys = RandomCache(shape, 2, 3),
          .values = shape.kind == AttentionKind::kGqa ? RandomCache(shape, 3, 1)
                                                      : std::vector<std::byte>()};
}

std::vector<Bf16> RunFast(Case& data, ThreadPool& pool) {
  const AttentionShape& shape = data.shape;
  AlignedBuffer workspace =
      AlignedBuffer::Create(static_cast<size_t>(AttentionWorkspaceBytes(shape, pool.num_threads())))
          .value();
  std::vector<Bf16> out =
      Poison(shape.num_sequences * shape.query_tokens * shape.num_heads * WidthsOf(shape).value);
  Attention(shape, data.query, data.cache(), out, workspace.As<std::byte>(workspace.bytes()), pool);
  return out;
}

void ExpectAgreement(const AttentionShape& shape) {
  ASSERT_TRUE(ValidateAttention(shape).ok()) << ValidateAttention(shape);
  Case data = MakeCase(shape);
  const int64_t width = WidthsOf(shape).value;
  std::vector<float> reference(
      static_cast<size_t>(shape.num_sequences * shape.query_tokens * shape.num_heads * width));
  AttentionReference(shape, data.query, data.cache(), {}, reference);
  for (const NamedPool& named : EveryPool()) {
    EXPECT_LE(RowError(RunFast(data, *named.pool), reference, width),
              // Scores of up to a few tens: their fp32 error passes through exp.
              Tolerance(1, shape.context + 512) + 1e-5)
        << named.name << " sequences=" << shape.num_sequences
        << " query_tokens=" << shape.query_tokens << " context=" << shape.context
        << " heads=" << shape.num_heads << "/" << shape.num_kv_heads << " width=" << width;
  }
}

TEST(AttentionTest, WeighsValuesByTheSoftmaxOfScoresByHand) {
  AttentionShape shape = Gqa(1, 2, 0, 1, 1, 1);
  shape.softmax_scale = 1;
  // Two new tokens without context: the first sees itself only, the second both, and its scores
  // are ln 3 and 0.
  const std::vector<Bf16> query = Bf16s({5, 0, 0, 1, 0, 0});
  std::vector<Bf16> keys = Bf16s({0, 0});
  keys[0] = ToBf16(std::log(3.0f));
  std::vector<Bf16> values = Bf16s({4, 8});
  std::vector<float> out(2);
  AttentionReference(
      shape, query,
      {std::as_writable_bytes(std::span(keys)), std::as_writable_bytes(std::span(values))}, {},
      out);
  const float three = std::exp(ToFloat(keys[0]));
  EXPECT_THAT(out, ElementsAre(4, FloatEq((three * 4 + 8) / (three + 1))));
}

TEST(AttentionTest, ReferenceOfSomeHeadsIsThatOfAll) {
  Case data = MakeCase(Gqa(3, 1, 20, 6, 2, 16));
  std::vector<float> all(3 * 6 * 16);
  AttentionReference(data.shape, data.query, data.cache(), {}, all);
  const std::vector<int64_t> tokens = {0, 2};
  const std::vector<int64_t> heads = {1, 5};
  std::vector<float> some(2 * 2 * 16);
  AttentionReference(data.shape, data.query, data.cache(), tokens, some, heads);
  for (size_t i = 0; i < some.size(); ++i) {
    const auto token = static_cast<size_t>(tokens[i / 32]);
    const auto head = static_cast<size_t>(heads[i / 16 % 2]);
    EXPECT_EQ(some[i], all[(token * 6 + head) * 16 + i % 16]) << i;
  }
}

TEST(AttentionTest, IsExactWhereAllWeightsAreEqual) {
  // Queries of zero give every position the same weight; 64 positions divide exactly.
  for (const NamedPool& named : EveryPool()) {
    Case data = MakeCase(Gqa(2, 1, 63, 4, 2, 16));
    data.query.assign(data.query.size(), Bf16{});
    const std::vector<Bf16> integers = SmallIntegers(CacheElements(data.shape), 5, 3);
    std::memcpy(data.values.data(), integers.data(), data.values.size());
    std::vector<float> reference(2 * 4 * 16);
    AttentionReference(data.shape, data.query, data.cache(), {}, reference);
    EXPECT_EQ(Floats(RunFast(data, *named.pool)), reference) << named.name;
  }
}

TEST(AttentionTest, AgreesForGqaInSizesThatNoTileDivides) {
  ExpectAgreement(Gqa(1, 1, 0, 1, 1, 8));   // A first token sees itself only.
  ExpectAgreement(Gqa(1, 1, 1, 5, 1, 20));  // Odd group, odd width.
  ExpectAgreement(Gqa(3, 1, 77, 6, 2, 128));
  ExpectAgreement(Gqa(2, 1, 300, 7, 7, 64));   // No sharing of KV heads.
  ExpectAgreement(Gqa(1, 1, 31, 16, 1, 100));  // One KV head for all.
  ExpectAgreement(Gqa(5, 1, 32, 4, 4, 3));
}

TEST(AttentionTest, AgreesWhereTheContextIsCutIntoChunks) {
  const AttentionShape shape = Gqa(1, 1, 4099, 8, 2, 64);
  ASSERT_GT(PlanAttention(shape, 3).chunks, 1);
  ExpectAgreement(shape);
  // Some rows of a chunk see none of its positions.
  const AttentionShape drafts = Gqa(1, 5, 2556, 4, 1, 32);
  ASSERT_GT(PlanAttention(drafts, 3).chunks, 1);
  ExpectAgreement(drafts);
}

TEST(AttentionTest, AgreesForSeveralNewTokensAndForPrompts) {
  ExpectAgreement(Gqa(2, 5, 40, 8, 2, 32));
  ExpectAgreement(Gqa(1, 150, 0, 4, 2, 32));
  ExpectAgreement(Gqa(2, 70, 33, 6, 1, 16));
}

TEST(AttentionTest, AgreesForAbsorbedMla) {
  ExpectAgreement(Mla(2, 1, 50, 16, 64, 16));
  ExpectAgreement(Mla(1, 1, 0, 3, 40, 8));
  ExpectAgreement(Mla(1, 3, 1100, 48, 512, 64));  // DeepSeek's widths: several row blocks.
  ExpectAgreement(Mla(1, 40, 0, 5, 20, 6));
}

TEST(AttentionTest, AgreesOnAnFp8Cache) {
  AttentionShape shape = Gqa(2, 2, 90, 6, 3, 36);
  shape.cache = CacheFormat::kFp8;
  ExpectAgreement(shape);
  shape = Mla(1, 1, 130, 8, 72, 12);
  shape.cache = CacheFormat::kFp8;
  ExpectAgreement(shape);
}

TEST(AttentionTest, FitsEveryAllowedWidthIntoAThreadsScratch) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    for (const int64_t width : {1, 8, 64, 128, 192, 256, 512, 576, 768}) {
      for (const int64_t heads : {1, 5, 64, 128}) {
        for (const int64_t query_tokens : {1, 5, 1000}) {
          AttentionShape gqa = Gqa(1, query_tokens, 100, heads, 1, width);
          gqa.cache = format;
          ASSERT_TRUE(ValidateAttention(gqa).ok());
          EXPECT_LE(TaskScratchBytes(gqa, PlanAttention(gqa, 2)),
                    static_cast<int64_t>(ThreadPool::kScratchBytes))
              << "width=" << width << " heads=" << heads;
        }
      }
    }
  }
}

TEST(AttentionTest, ReferenceComputesASampleOfTheTokens) {
  Case data = MakeCase(Gqa(3, 1, 5, 2, 1, 4));
  std::vector<float> all(3 * 8);
  std::vector<float> one(8);
  AttentionReference(data.shape, data.query, data.cache(), {}, all);
  AttentionReference(data.shape, data.query, data.cache(), std::vector<int64_t>{2}, one);
  EXPECT_EQ(one, std::vector<float>(all.begin() + 16, all.end()));
}

TEST(AttentionTest, RefusesHeadsThatKvHeadsDoNotDivide) {
  const absl::Status status = ValidateAttention(Gqa(1, 1, 0, 6, 4, 8));
  EXPECT_THAT(status.message(), HasSubstr("6 mod num_kv_heads 4 = 2"));
  EXPECT_FALSE(ValidateAttention(Gqa(1, 1, 0, 4, 4, 1000)).ok());
}

TEST(KvCacheTest, FillsTheContextAndLeavesThePlacesOfNewTokens) {
  const std::vector<NamedPool> pools = EveryPool();
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    AttentionShape shape = Gqa(2, 2, 130, 2, 1, 4);
    shape.cache = format;
    const auto bytes = static_cast<size_t>(CacheElements(shape) * CacheElementBytes(format));
    std::vector<std::byte> keys(bytes, std::byte{0x11});
    std::vector<std::byte> values(bytes, std::byte{0x11});
    FillRandomCache(shape, 4, 9, {keys, values}, *pools.back().pool);
    std::vector<std::byte> again(bytes, std::byte{0x11});
    std::vector<std::byte> again_values(bytes, std::byte{0x11});
    FillRandomCache(shape, 4, 9, {again, again_values}, *pools.front().pool);
    EXPECT_EQ(keys, again);
    EXPECT_NE(keys, values);
    const size_t row = 4 * static_cast<size_t>(CacheElementBytes(format));
    for (const size_t sequence : {0, 1}) {
      for (size_t i = 0; i < 132 * row; ++i) {
        if (i >= 130 * row) {
          ASSERT_EQ(keys[sequence * 132 * row + i], std::byte{0x11});
        }
      }
    }
  }
}

}  // namespace
}  // namespace lastflop
