#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/words.h"

namespace lastflop {

// From this many bytes on, `auto` runs two_shot on the CPU backend. One meeting of the ranks fewer
// makes one_shot faster below it; above it the sum, which two_shot divides over the ranks, costs
// more than the second meeting. docs/kernels/cpu_dense.md has the measurement.
inline constexpr int64_t kTwoShotFromBytes = 64 << 10;

// What `asked` runs as on the CPU backend for `bytes` over `ranks`: itself, or the choice of
// `auto`: one_shot below kTwoShotFromBytes or with one rank, else two_shot. Unimplemented for
// nccl, with the reason.
absl::StatusOr<AllReduceAlgorithm> ResolveCpuAllReduce(AllReduceAlgorithm asked, int64_t bytes,
                                                       int64_t ranks);

}  // namespace lastflop
