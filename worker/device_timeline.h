#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

namespace lastflop {

// Start and end of something on a device, in us on one clock.
struct TimeSpan {
  double begin_us = 0;
  double end_us = 0;
};

// Where the time of a step went, by op.
struct OpTimes {
  std::vector<double> op_us;    // Work, overlapped time counted once: for the op that began first.
  std::vector<double> idle_us;  // Before the op's work, with nothing running.
};

// Divides a trace of one step, by start, among its ops: op i began spans_per_op[i] of them, in
// order. Work and idle time together are the step, from its first to its last moment.
// FailedPrecondition when the spans are not as many as the ops began, with both numbers.
absl::StatusOr<OpTimes> DivideAmongOps(const std::vector<TimeSpan>& spans,
                                       const std::vector<int>& spans_per_op);

}  // namespace lastflop
