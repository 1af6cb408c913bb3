#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"

namespace lastflop {

// What the cores of this host reach together.
struct HostSpeeds {
  std::vector<ReadCurvePoint> cold_read;  // worker/read_curve.h
  double tflop_per_s = 0;                 // kernels/cpu/flop_probe.h
};

// Measures them on a pool of its own over all cores that this process may use. About a second.
// Internal or ResourceExhausted: no threads, or no memory.
absl::StatusOr<HostSpeeds> MeasureHostSpeeds();

// The same, measured once while any worker that knows it lives: the first one measures, others wait
// for it and take its figures from a file in the user's folder under /tmp. Blocks for the
// measurement; nothing else is measured meanwhile by a worker of this host that starts. Leaves the
// affinity of the calling thread alone. `folder` is for tests. Internal or ResourceExhausted: no
// lock, or no memory.
absl::StatusOr<HostSpeeds> SpeedsOfHost(const std::string& folder = "");

// The CPU's machine (worker/host.h) with these speeds.
Machine WithSpeeds(Machine machine, const HostSpeeds& speeds);

}  // namespace lastflop
