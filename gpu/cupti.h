#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// One kernel, copy or fill as it ran on the device.
struct DeviceActivity {
  uint64_t start_ns = 0;  // On the device's clock.
  uint64_t end_ns = 0;
  std::string name;  // Of a kernel, mangled.
};

// What ran on the device while `work` did, by start: kernels one by one, also those of graphs that
// `work` instantiates. `work` waits for the device before it returns. With CUPTI of the host, which
// is found when first asked for. Tracing costs time: for runs of their own. NotFound without CUPTI;
// FailedPrecondition when another profiler has the device; one trace a process at a time.
absl::StatusOr<std::vector<DeviceActivity>> TraceDevice(const std::function<absl::Status()>& work);

}  // namespace lastflop
