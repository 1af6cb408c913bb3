#include "worker/cpu_check_op.h"

#include <cmath>
#include <limits>
#include <variant>

#include "common/random.h"
#include "worker/cpu_op_checker.h"

namespace lastflop {

double OpCheck::share() const {
  if (std::isnan(error)) {
    return std::numeric_limits<double>::infinity();
  }
  if (tolerance > 0) {
    return error / tolerance;
  }
  return error > 0 ? std::numeric_limits<double>::infinity() : 0;
}

void OpCheck::Add(const OpCheck& other) {
  if (other.share() > share() || (share() == 0 && other.tolerance > tolerance)) {
    *this = other;
  }
}

std::vector<int64_t> SampleIndices(int64_t count, int64_t most, uint64_t seed) {
  std::vector<int64_t> indices;
  if (count <= most) {
    for (int64_t i = 0; i < count; ++i) {
      indices.push_back(i);
    }
    return indices;
  }
  constexpr uint64_t kStream = 0x73616D70;
  if (most == 1) {
    return {static_cast<int64_t>(CounterRandom(seed, kStream, 0) % static_cast<uint64_t>(count))};
  }
  indices = {0, count - 1};
  for (int64_t i = 2; i < most; ++i) {
    const uint64_t random = CounterRandom(seed, kStream, static_cast<uint64_t>(i));
    indices.push_back(static_cast<int64_t>(random % static_cast<uint64_t>(count)));
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

uint64_t SeedOfTurn(uint64_t random, uint64_t num_layers, uint64_t turn) {
  // Small enough that nothing wraps, which would change what is left over.
  return random % (uint64_t{1} << 62) / num_layers * num_layers + turn % num_layers;
}

absl::StatusOr<OpCheck> CheckCpuOp(CpuStep& step, CpuOp& op, uint64_t sample_seed,
                                   const AfterOp& after_op) {
  return std::visit(CpuOpChecker(step, op, sample_seed, after_op), op.op->shape);
}

}  // namespace lastflop
