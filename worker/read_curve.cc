#include "worker/read_curve.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status_macros.h"
#include "kernels/cpu/aligned_buffer.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kLeastBufferBytes = 256 * kMib;
constexpr int64_t kTaskWords = 64 * 1024 / 8;
constexpr int kReads = 9;

// A word of every line, asked for ahead: the memory is to be the limit, not the adds. Eight sums,
// so that they do not wait for each other.
uint64_t Sum(const uint64_t* data, int64_t num_words) {
  constexpr int64_t kLineWords = 8;
  constexpr int64_t kAheadWords = 2048 / 8;
  uint64_t sums[8] = {};
  int64_t i = 0;
  for (; i + 8 * kLineWords <= num_words; i += 8 * kLineWords) {
    for (int64_t line = 0; line < 8; ++line) {
      __builtin_prefetch(data + i + line * kLineWords + kAheadWords);
      sums[line] += data[i + line * kLineWords];
    }
  }
  for (; i < num_words; i += kLineWords) {
    sums[0] += data[i];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

double ReadMicros(ThreadPool& pool, const uint64_t* data, int64_t num_words) {
  std::atomic<uint64_t> sink{0};
  const Clock::time_point start = Clock::now();
  pool.ParallelFor((num_words + kTaskWords - 1) / kTaskWords, [&](int64_t task, int /*thread*/) {
    const int64_t begin = task * kTaskWords;
    sink.fetch_add(Sum(data + begin, std::min(kTaskWords, num_words - begin)),
                   std::memory_order_relaxed);
  });
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::vector<ReadCurvePoint>> MeasureReadCurve(ThreadPool& pool,
                                                             int64_t last_level_cache_bytes) {
  const int64_t buffer_bytes = std::max(kLeastBufferBytes, 8 * last_level_cache_bytes);
  const int64_t buffer_words = buffer_bytes / 8;
  // Of huge pages, as weights are.
  LASTFLOP_ASSIGN_OR_RETURN(AlignedBuffer memory,
                            AlignedBuffer::Create(static_cast<size_t>(buffer_bytes)));
  const std::span<uint64_t> buffer = memory.As<uint64_t>(static_cast<size_t>(buffer_words));
  pool.ParallelFor(buffer_words / kTaskWords, [&](int64_t task, int /*thread*/) {
    std::fill_n(buffer.data() + task * kTaskWords, kTaskWords, static_cast<uint64_t>(task));
  });
  std::vector<ReadCurvePoint> curve;
  int64_t place = 0;
  for (int64_t bytes = kMib; bytes <= std::max(64 * kMib, 4 * last_level_cache_bytes); bytes *= 4) {
    std::vector<double> times;
    for (int i = 0; i < kReads; ++i) {
      // Consecutive places: what a read finds was last touched a whole buffer ago.
      if ((place + bytes) / 8 > buffer_words) {
        place = 0;
      }
      times.push_back(ReadMicros(pool, buffer.data() + place / 8, bytes / 8));
      place += bytes;
    }
    // The fastest: a floor is what an op may reach, and whatever disturbs a read only lengthens it.
    curve.push_back(
        {.bytes = static_cast<double>(bytes), .us = *std::min_element(times.begin(), times.end())});
  }
  return curve;
}

}  // namespace lastflop
