#include "kernels/rope/rope.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/fp8.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

RopeShape Gqa(int64_t sequences, int64_t query_tokens, int64_t context) {
  return {.kind = AttentionKind::kGqa,
          .num_sequences = sequences,
          .query_tokens = query_tokens,
          .context = context,
          .num_heads = 3,
          .num_kv_heads = 1,
          .head_dim = 20,
          .rotary_dim = 20,
          .theta = 10000};
}

RopeShape Mla(int64_t sequences, int64_t query_tokens, int64_t context) {
  return {.kind = AttentionKind::kMla,
          .num_sequences = sequences,
          .query_tokens = query_tokens,
          .context = context,
          .num_heads = 3,
          .num_kv_heads = 1,
          .rotary_dim = 16,
          .kv_lora_rank = 24,
          .qk_nope_head_dim = 8,
          .qk_rope_head_dim = 16,
          .theta = 10000};
}

std::vector<float> CacheFloats(CacheFormat format, std::span<const std::byte> cache) {
  std::vector<float> values;
  const size_t bytes = format == CacheFormat::kFp8 ? 1 : 2;
  for (size_t i = 0; i < cache.size(); i += bytes) {
    values.push_back(format == CacheFormat::kFp8
                         ? ToFloat(*reinterpret_cast<const Fp8*>(cache.data() + i))
                         : ToFloat(*reinterpret_cast<const Bf16*>(cache.data() + i)));
  }
  return values;
}

TEST(RopeTest, TurnsPairsByTheirPositionByHand) {
  RopeShape shape = Gqa(1, 1, 2);
  shape.num_heads = 1;
  shape.head_dim = 3;
  shape.rotary_dim = 2;
  // One pair at position 2: an angle of 2 radians; the third element is not turned.
  std::vector<float> qkv = {1, 0, 5, 0, 1, 6, 7, 8, 9};
  std::vector<std::byte> keys(18);
  std::vector<std::byte> values(18);
  RopeGqaReference(shape, qkv, {keys, values});
  EXPECT_NEAR(qkv[0], std::cos(2.0), 2e-3);
  EXPECT_NEAR(qkv[1], std::sin(2.0), 4e-3);
  EXPECT_EQ(qkv[2], 5);
  const std::vector<float> key = CacheFloats(CacheFormat::kBf16, keys);
  const std::vector<float> value = CacheFloats(CacheFormat::kBf16, values);
  EXPECT_THAT(
      key, ElementsAre(0, 0, 0, 0, 0, 0, FloatNear(-0.909f, 4e-3f), FloatNear(-0.416f, 4e-3f), 6));
  EXPECT_THAT(value, ElementsAre(0, 0, 0, 0, 0, 0, 7, 8, 9));
}

TEST(RopeTest, AgreesWithItsReferenceForGqa) {
  for (const NamedPool& named : EveryPool()) {
    for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
      for (const int64_t rotary_dim : {0, 2, 12, 20}) {
        for (const auto& [sequences, query_tokens, context] :
             {std::tuple<int64_t, int64_t, int64_t>{1, 1, 0}, {2, 1, 9}, {3, 4, 5}}) {
          RopeShape shape = Gqa(sequences, query_tokens, context);
          shape.cache = format;
          shape.rotary_dim = rotary_dim;
          ASSERT_TRUE(ValidateRope(shape).ok());
          std::vector<Bf16> qkv = RandomValues(sequences * query_tokens * 100, 1);
          std::vector<float> reference = Floats(qkv);
          const auto bytes =
              static_cast<size_t>(CacheElements(AttentionOf(shape)) * CacheElementBytes(format));
          std::vector<std::byte> keys(bytes), values(bytes);
          std::vector<std::byte> reference_keys(bytes), reference_values(bytes);
          RopeGqaReference(shape, reference, {reference_keys, reference_values});
          RopeGqa(shape, RopeTable(shape), qkv, {keys, values}, *named.pool);
          EXPECT_LE(RowError(qkv, reference, 100), Tolerance(2, 1)) << named.name;
          EXPECT_LE(RowError(std::span<const float>(CacheFloats(format, keys)),
                             CacheFloats(format, reference_keys), 20),
                    // A last bit of bf16 can tip a rounding to fp8.
                    format == CacheFormat::kFp8 ? 0.06 : Tolerance(2, 1));
          EXPECT_EQ(values, reference_values);
        }
      }
    }
  }
}

TEST(RopeTest, AgreesWithItsReferenceForMla) {
  for (const NamedPool& named : EveryPool()) {
    for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
      RopeShape shape = Mla(2, 3, 7);
      shape.cache = format;
      ASSERT_TRUE(ValidateRope(shape).ok());
      const int64_t num_tokens = 6;
      const std::vector<Bf16> query = RandomValues(num_tokens * 3 * 24, 1);
      const std::vector<Bf16> latents = RandomValues(num_tokens * (32 + 40), 2);
      std::vector<Bf16> absorbed = RandomValues(num_tokens * 3 * 40, 3);
      std::vector<float> reference = Floats(absorbed);
      const auto bytes =
          static_cast<size_t>(CacheElements(AttentionOf(shape)) * CacheElementBytes(format));
      std::vector<std::byte> keys(bytes);
      std::vector<std::byte> reference_keys(bytes);
      RopeMlaReference(shape, query, latents, reference, {reference_keys, {}});
      RopeMla(shape, RopeTable(shape), query, latents, absorbed, {keys, {}}, *named.pool);
      EXPECT_LE(RowError(absorbed, reference, 40), Tolerance(2, 1)) << named.name;
      EXPECT_LE(RowError(std::span<const float>(CacheFloats(format, keys)),
                         CacheFloats(format, reference_keys), 40),
                format == CacheFormat::kFp8 ? 0.06 : Tolerance(2, 1));
    }
  }
}

TEST(RopeTest, RefusesARotaryDimThatIsOddOrTooWide) {
  RopeShape shape = Gqa(1, 1, 0);
  shape.rotary_dim = 21;
  EXPECT_FALSE(ValidateRope(shape).ok());
  shape.rotary_dim = 22;
  EXPECT_FALSE(ValidateRope(shape).ok());
  shape = Mla(1, 1, 0);
  shape.rotary_dim = 8;
  EXPECT_FALSE(ValidateRope(shape).ok());
}

}  // namespace
}  // namespace lastflop
