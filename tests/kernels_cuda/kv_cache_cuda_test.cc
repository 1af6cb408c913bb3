#include "kernels/attention/kv_cache_cuda.h"

#include <algorithm>
#include <span>
#include <vector>

#include "common/random.h"
#include "kernels/cpu/fp8.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

// The context by its formula; what is not context stays 0xFF.
template <typename T, typename Convert>
std::vector<T> Expected(const AttentionShape& shape, const KvSlice& slice, uint64_t seed,
                        uint64_t stream, int64_t heads, int64_t width, const Convert& convert) {
  const int64_t positions = shape.context + shape.query_tokens;
  std::vector<T> cache(static_cast<size_t>(CacheElements(shape)), T{0xFF});
  if constexpr (sizeof(T) == 2) {
    std::fill(cache.begin(), cache.end(), T{0xFFFF});
  }
  for (int64_t sequence = 0; sequence < shape.num_sequences; ++sequence) {
    for (int64_t position = 0; position < shape.context; ++position) {
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t row = ContextRow(slice, sequence, position, head);
        for (int64_t i = 0; i < width; ++i) {
          const auto draw = static_cast<uint64_t>(row * ((width + 3) / 4) + i / 4);
          const uint64_t bits = CounterRandom(seed, stream, draw);
          cache[static_cast<size_t>(((sequence * positions + position) * heads + head) * width +
                                    i)] = convert(ContextValue(bits, static_cast<int>(i % 4)));
        }
      }
    }
  }
  return cache;
}

TEST(KvCacheCudaTest, HoldsTheContextOfItsSliceBitByBit) {
  LASTFLOP_NEED_GPU();
  const AttentionShape shape = {.kind = AttentionKind::kGqa,
                                .num_sequences = 3,
                                .query_tokens = 2,
                                .context = 37,
                                .num_heads = 8,
                                .num_kv_heads = 2,
                                .head_dim = 30,
                                .softmax_scale = 1};
  const KvSlice slice = {.first_sequence = 5, .first_kv_head = 4, .num_kv_heads_full = 6};
  const DeviceArray<Bf16> keys(CacheElements(shape));
  const DeviceArray<Bf16> values(CacheElements(shape));
  LASTFLOP_EXPECT_OK(
      LaunchFillRandomCache(shape, slice, 11, 42, {keys.get(), values.get()}, nullptr));
  EXPECT_EQ(keys.Download(),
            Expected<Bf16>(shape, slice, 42, kContextKeyStream + 11, 2, 30, ToBf16));
  EXPECT_EQ(values.Download(),
            Expected<Bf16>(shape, slice, 42, kContextValueStream + 11, 2, 30, ToBf16));
}

TEST(KvCacheCudaTest, RoundsToFp8AsTheHostDoes) {
  LASTFLOP_NEED_GPU();
  const AttentionShape shape = {.kind = AttentionKind::kMla,
                                .num_sequences = 2,
                                .query_tokens = 1,
                                .context = 300,
                                .num_heads = 8,
                                .num_kv_heads = 1,
                                .kv_lora_rank = 512,
                                .qk_rope_head_dim = 64,
                                .softmax_scale = 1,
                                .cache = CacheFormat::kFp8};
  const DeviceArray<Fp8> keys(CacheElements(shape));
  LASTFLOP_EXPECT_OK(LaunchFillRandomCache(shape, {}, 0, 7, {keys.get(), nullptr}, nullptr));
  EXPECT_EQ(keys.Download(), Expected<Fp8>(shape, {}, 7, kContextKeyStream, 1, 576, ToFp8));
}

TEST(KvCacheCudaTest, RefusesASliceThatTheModelHasNot) {
  const AttentionShape shape = {.kind = AttentionKind::kGqa,
                                .num_sequences = 1,
                                .context = 1,
                                .num_heads = 2,
                                .num_kv_heads = 2,
                                .head_dim = 8,
                                .softmax_scale = 1};
  EXPECT_EQ(
      LaunchFillRandomCache(shape, {.first_kv_head = 1, .num_kv_heads_full = 2}, 0, 0, {}, nullptr)
          .code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
