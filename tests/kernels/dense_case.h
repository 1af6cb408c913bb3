#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"

// Builds, threads and data that the tests of the dense and attention kernels run on.
namespace lastflop {

// A pool of each build that this machine runs, with one thread and with three.
struct NamedPool {
  std::string name;
  std::unique_ptr<ThreadPool> pool;
};
inline std::vector<NamedPool> EveryPool() {
  std::vector<NamedPool> pools;
  for (const VectorIsa isa : {VectorIsa::kPortable, VectorIsa::kAvx2}) {
    if (isa == VectorIsa::kAvx2 && DetectVectorIsa() != VectorIsa::kAvx2) {
      continue;
    }
    for (const size_t threads : {1, 3}) {
      ThreadPool::Options options = {
          .cores = std::vector<int>(threads, -1), .shared_cores = threads > 1, .isa = isa};
      pools.push_back({absl::StrCat(Describe(isa), ", threads=", threads),
                       ThreadPool::Create(options).value()});
    }
  }
  return pools;
}

// Uniform in [-amplitude, amplitude), rounded to bf16.
inline std::vector<Bf16> RandomValues(int64_t count, uint64_t seed, float amplitude = 1.0f) {
  std::vector<Bf16> values;
  for (int64_t i = 0; i < count; ++i) {
    const float unit = CounterUniform(seed, 17, static_cast<uint64_t>(i));
    values.push_back(ToBf16((2 * unit - 1) * amplitude));
  }
  return values;
}

// Whole numbers from -limit to limit: products and sums of few of them are exact.
inline std::vector<Bf16> SmallIntegers(int64_t count, uint64_t seed, int64_t limit) {
  std::vector<Bf16> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t draw = CounterRandom(seed, 23, static_cast<uint64_t>(i));
    const auto value = static_cast<int64_t>(draw % static_cast<uint64_t>(2 * limit + 1)) - limit;
    values.push_back(ToBf16(static_cast<float>(value)));
  }
  return values;
}

inline std::vector<float> Floats(std::span<const Bf16> values) {
  std::vector<float> floats;
  for (const Bf16 value : values) {
    floats.push_back(ToFloat(value));
  }
  return floats;
}

inline std::vector<Bf16> Bf16s(std::initializer_list<float> values) {
  std::vector<Bf16> result;
  for (const float value : values) {
    result.push_back(ToBf16(value));
  }
  return result;
}

// What a buffer holds before a kernel writes it: a value that no test expects.
inline std::vector<Bf16> Poison(int64_t count) {
  return std::vector<Bf16>(static_cast<size_t>(count), Bf16{0x7FC0});
}

}  // namespace lastflop
