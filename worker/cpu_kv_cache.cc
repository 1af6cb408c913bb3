#include "worker/cpu_kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8.h"
#include "worker/kv_place.h"

namespace lastflop {
namespace {

constexpr int64_t kPositionsPerTask = 64;

void Convert(float value, Bf16& out) { out = ToBf16(value); }
void Convert(float value, Fp8& out) { out = ToFp8(value); }

// `size` values in [-1, 1) of row `row` of the model's cache, four a draw.
template <typename T>
void FillRow(uint64_t seed, uint64_t stream, int64_t row, int64_t size, T* out) {
  const int64_t draws = (size + 3) / 4;
  for (int64_t i = 0; i < draws; ++i) {
    const uint64_t bits = CounterRandom(seed, stream, static_cast<uint64_t>(row * draws + i));
    for (int64_t j = 0; j < std::min<int64_t>(4, size - 4 * i); ++j) {
      Convert(ContextValue(bits, static_cast<int>(j)), out[4 * i + j]);
    }
  }
}

// Rows of one position: KV heads, or the one latent.
struct Rows {
  int64_t heads = 0;
  int64_t width = 0;
};

template <typename T>
void FillContext(const AttentionShape& shape, const KvSlice& slice, const Rows& rows, uint64_t seed,
                 uint64_t stream, T* out, ThreadPool& pool) {
  const int64_t positions = shape.context + shape.query_tokens;
  const int64_t blocks = (shape.context + kPositionsPerTask - 1) / kPositionsPerTask;
  pool.ParallelFor(shape.num_sequences * blocks, [&](int64_t task, int /*thread*/) {
    const int64_t sequence = task / blocks;
    const int64_t begin = task % blocks * kPositionsPerTask;
    const int64_t end = std::min(shape.context, begin + kPositionsPerTask);
    for (int64_t position = begin; position < end; ++position) {
      for (int64_t head = 0; head < rows.heads; ++head) {
        const int64_t row = ContextRow(slice, sequence, position, head);
        const int64_t local = (sequence * positions + position) * rows.heads + head;
        FillRow(seed, stream, row, rows.width, out + local * rows.width);
      }
    }
  });
}

void Fill(const AttentionShape& shape, const KvSlice& slice, int layer, uint64_t seed,
          const KvCache& cache, ThreadPool& pool) {
  const bool is_gqa = shape.kind == AttentionKind::kGqa;
  const Rows rows = is_gqa ? Rows{.heads = shape.num_kv_heads, .width = shape.head_dim}
                           : Rows{.heads = 1, .width = shape.kv_lora_rank + shape.qk_rope_head_dim};
  const auto fill = [&](uint64_t stream, std::span<std::byte> out) {
    if (out.empty()) {
      return;
    }
    const uint64_t of_layer = stream + static_cast<uint64_t>(layer);
    if (shape.cache == CacheFormat::kFp8) {
      FillContext(shape, slice, rows, seed, of_layer, reinterpret_cast<Fp8*>(out.data()), pool);
    } else {
      FillContext(shape, slice, rows, seed, of_layer, reinterpret_cast<Bf16*>(out.data()), pool);
    }
  };
  fill(kContextKeyStream, cache.keys);
  fill(kContextValueStream, cache.values);
}

KvCache ViewOf(AlignedBuffer& buffer, size_t key_bytes) {
  std::byte* const data = buffer.data();
  return {.keys = {data, key_bytes}, .values = {data + key_bytes, buffer.bytes() - key_bytes}};
}

}  // namespace

absl::StatusOr<CpuKvCache> CpuKvCache::Load(const AttentionShape& shape, const KvSlice& slice,
                                            int layer, const WeightData& data,
                                            CpuBufferStore& store, ThreadPool& pool) {
  const bool is_gqa = shape.kind == AttentionKind::kGqa;
  const auto key_bytes = static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache));
  const std::string key = KvCacheKey(shape, slice, layer, data.zeros);
  LASTFLOP_ASSIGN_OR_RETURN(
      auto buffer, store.Get(key, is_gqa ? 2 * key_bytes : key_bytes, [&](AlignedBuffer& memory) {
        if (!data.zeros) {
          Fill(shape, slice, layer, data.seed, ViewOf(memory, key_bytes), pool);
        }
        return absl::OkStatus();
      }));
  return CpuKvCache(std::move(buffer), key_bytes);
}

absl::StatusOr<CpuKvCache> CpuKvCache::Empty(const AttentionShape& shape, CpuBufferStore& store) {
  const auto key_bytes = static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache));
  const size_t bytes = shape.kind == AttentionKind::kGqa ? 2 * key_bytes : key_bytes;
  LASTFLOP_ASSIGN_OR_RETURN(auto buffer,
                            store.Get(absl::StrCat("mirror of a kv cache ", bytes), bytes,
                                      [](AlignedBuffer& /*memory*/) { return absl::OkStatus(); }));
  return CpuKvCache(std::move(buffer), key_bytes);
}

KvCache CpuKvCache::view() const { return ViewOf(*buffer_, key_bytes_); }

}  // namespace lastflop
