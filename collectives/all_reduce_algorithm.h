#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/words.h"

namespace lastflop {

// When a rank would read this many bytes of other ranks in one_shot, `auto` runs two_shot on the
// CPU backend: the sum, which two_shot divides over the ranks, then costs more than its second
// meeting. Measured with two ranks (docs/kernels/cpu_dense.md): 97 against 105 us at 256 KiB, 399
// against 373 us at 1 MiB, CPU time of a rank.
inline constexpr int64_t kTwoShotFromBytes = 512 << 10;

// What `asked` runs as on the CPU backend for `bytes` over `ranks`: itself, or the choice of
// `auto`: two_shot where bytes * (ranks - 1) reaches kTwoShotFromBytes, else one_shot.
// Unimplemented for nccl, with the reason.
absl::StatusOr<AllReduceAlgorithm> ResolveCpuAllReduce(AllReduceAlgorithm asked, int64_t bytes,
                                                       int64_t ranks);

}  // namespace lastflop
