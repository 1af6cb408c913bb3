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

// What `asked` runs as on GPUs, of which `reach_each_other` says whether they have peer access.
// `auto` of two ranks is one_shot below 12 MiB and two_shot from there on, as measured on two H200s
// (docs/kernels/all_reduce.md); both are faster than NCCL from 4 B to 64 MiB. Of more ranks it is
// two_shot from where one_shot's further bytes take longer than the second hop, at those GPUs'
// rates: calculated, not measured. Without peer access it is nccl. A two_shot of fewer packets than
// ranks is one_shot. Unimplemented, with the reason, for ring, and for one_shot and two_shot
// without peer access.
absl::StatusOr<AllReduceAlgorithm> ResolveCudaAllReduce(AllReduceAlgorithm asked, int64_t bytes,
                                                        int64_t ranks, bool reach_each_other);

}  // namespace lastflop
