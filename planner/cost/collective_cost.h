#pragma once

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "planner/cost/op_curves.h"
#include "step/op.h"

namespace lastflop {

// The time of a collective or a hand-over between pipeline stages. What `lastflop calibrate` found
// of all-reduces on this machine comes first; NCCL's of two ranks on the machine of the curves is
// measured; other counts come from the machine's own numbers (step/collective_model.h), else from
// its link and the curves' latency times log2(ranks).
// one_shot, two_shot and peer-to-peer all-to-all of two ranks there are measured as well; of more,
// and everything else, they are assumed: a latency, no lower than NCCL's over PCIe, and the bytes
// over the link. 0 for one rank, and for the receiving end of a hand-over. InvalidArgument: no
// link_gb_per_s, declared or measured.
absl::StatusOr<TimeEstimate> EstimateCollective(const Op& op, const Machine& machine,
                                                const MachineRates& rates, const OpCurves& curves);

}  // namespace lastflop
