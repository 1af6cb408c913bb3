#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/cpu_step.h"

namespace lastflop {

// What a check found of one op.
struct OpCheck {
  double error = 0;      // Largest relative row error, as kernels/tolerance.h measures it.
  double tolerance = 0;  // What it may be; 0 where results must be equal.
  std::string what;      // "keys in the cache": which result, where an op has several.
  bool ok() const { return share() <= 1; }
  double share() const;  // error / tolerance; infinity where results had to be equal and are not.
  // The worse of both, by share.
  void Add(const OpCheck& other);
};

// For tests: sees, and may spoil, the output of an op that is being checked.
using AfterOp = std::function<void(const Op& op, std::span<std::byte> out)>;

// Poisons the op's output, runs it as RunCpuOp does and compares the result with the plain
// reference on common inputs, on sampled rows and output features where the whole would take more
// than a few milliseconds; `sample_seed` is equal on all ranks and chooses them. The error of a
// collective is an error.
absl::StatusOr<OpCheck> CheckCpuOp(CpuStep& step, CpuOp& op, uint64_t sample_seed,
                                   const AfterOp& after_op);

// A sample seed from `random` with which, of `num_layers` MoE layers, that of moe_index `turn`
// (modulo num_layers) has its fused op compared in full.
uint64_t SeedOfTurn(uint64_t random, uint64_t num_layers, uint64_t turn);

}  // namespace lastflop
