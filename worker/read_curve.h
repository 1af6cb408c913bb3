#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "kernels/cpu/thread_pool.h"

namespace lastflop {

// Measures how long all threads of `pool` together take to read data that no cache holds: the floor
// under every op that streams weights. Sizes from 1 MiB to four times the last-level cache, each
// the fastest of nine reads at fresh places of a buffer of at least eight times that cache. Takes
// a few tenths of a second and the whole memory bandwidth: nothing else may be measured meanwhile.
// ResourceExhausted: no memory for the buffer.
absl::StatusOr<std::vector<ReadCurvePoint>> MeasureReadCurve(ThreadPool& pool,
                                                             int64_t last_level_cache_bytes);

}  // namespace lastflop
