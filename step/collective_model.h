#pragma once

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "step/op.h"

namespace lastflop {

// Time of a collective of a step that a shard does not run, from the machine's own numbers:
// latency plus the bytes that the busiest link carries over its rate. All-reduce moves
// 2 (n - 1) / n of its data over each link (reduce-scatter and all-gather); the exchange of
// sampling moves (n - 1) candidates, all-to-all the rows of its op's work. The measured rate of the
// link goes before the declared one. 0 for ops that are no collectives, or of one rank.
// InvalidArgument: a machine without a rate of the link or collective_latency_us.
absl::StatusOr<double> ModelledCollectiveMicros(const Op& op, const Machine& machine);

}  // namespace lastflop
