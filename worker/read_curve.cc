#include "worker/read_curve.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kLeastBufferBytes = 256 * kMib;
constexpr int64_t kTaskWords = 64 * 1024 / 8;
constexpr int kReads = 9;

// Four sums, so that the adds do not wait for each other.
uint64_t Sum(const uint64_t* data, int64_t num_words) {
  uint64_t sums[4] = {};
  for (int64_t i = 0; i + 4 <= num_words; i += 4) {
    sums[0] += data[i];
    sums[1] += data[i + 1];
    sums[2] += data[i + 2];
    sums[3] += data[i + 3];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
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
  const std::unique_ptr<uint64_t[]> buffer(new (std::nothrow)
                                               uint64_t[static_cast<size_t>(buffer_words)]);
  if (buffer == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a read buffer of ", buffer_bytes, " bytes"));
  }
  pool.ParallelFor(buffer_words / kTaskWords, [&](int64_t task, int /*thread*/) {
    std::fill_n(buffer.get() + task * kTaskWords, kTaskWords, static_cast<uint64_t>(task));
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
      times.push_back(ReadMicros(pool, buffer.get() + place / 8, bytes / 8));
      place += bytes;
    }
    std::nth_element(times.begin(), times.begin() + kReads / 2, times.end());
    curve.push_back({.bytes = static_cast<double>(bytes), .us = times[kReads / 2]});
  }
  return curve;
}

}  // namespace lastflop
