#include "kernels/attention/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "common/random.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/thread_pool.h"

namespace lastflop {
namespace {

// Random draws give four 16-bit values each, as TrueWeight's do.
void FillRow(CacheFormat format, uint64_t seed, uint64_t stream, int64_t first, int64_t count,
             std::byte* row) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = TrueWeight(seed, stream, static_cast<uint64_t>(first + i), 1.0f);
    if (format == CacheFormat::kFp8) {
      reinterpret_cast<Fp8*>(row)[i] = ToFp8(value);
    } else {
      reinterpret_cast<Bf16*>(row)[i] = ToBf16(value);
    }
  }
}

}  // namespace

int64_t CacheElementBytes(CacheFormat format) { return format == CacheFormat::kFp8 ? 1 : 2; }

int64_t CacheElements(const AttentionShape& shape) {
  return shape.num_sequences * (shape.context + shape.query_tokens) * WidthsOf(shape).cache_stride;
}

void FillRandomCache(const AttentionShape& shape, uint64_t seed, uint64_t stream,
                     const KvCache& cache, ThreadPool& pool) {
  const int64_t stride = WidthsOf(shape).cache_stride;
  const int64_t positions = shape.context + shape.query_tokens;
  const int64_t bytes = CacheElementBytes(shape.cache);
  // A task is 64 positions of one sequence.
  constexpr int64_t kTaskPositions = 64;
  const int64_t tasks_per_sequence = (shape.context + kTaskPositions - 1) / kTaskPositions;
  pool.ParallelFor(shape.num_sequences * tasks_per_sequence, [&](int64_t task, int /*thread*/) {
    const int64_t begin = task % tasks_per_sequence * kTaskPositions;
    const int64_t end = std::min(shape.context, begin + kTaskPositions);
    const int64_t first = (task / tasks_per_sequence * positions + begin) * stride;
    const int64_t count = (end - begin) * stride;
    FillRow(shape.cache, seed, stream, first, count, cache.keys.data() + first * bytes);
    if (shape.kind == AttentionKind::kGqa) {
      FillRow(shape.cache, seed, ~stream, first, count, cache.values.data() + first * bytes);
    }
  });
}

}  // namespace lastflop
