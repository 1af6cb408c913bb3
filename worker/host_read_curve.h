#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"

namespace lastflop {

// The cold-read curve of this host's cores together (worker/read_curve.h), measured once while any
// worker that knows it lives: the first one measures, others wait for it and take its figures from
// a file in the user's folder under /tmp. Blocks for the measurement, about a second; nothing else
// is measured meanwhile by a worker of this host that starts. Leaves the affinity of the calling
// thread alone. `folder` is for tests. Internal or ResourceExhausted: no lock, or no memory.
absl::StatusOr<std::vector<ReadCurvePoint>> ReadCurveOfHost(const std::string& folder = "");

}  // namespace lastflop
