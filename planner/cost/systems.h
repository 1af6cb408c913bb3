#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/machine.h"

namespace lastflop {

// A GPU as rows of measurements name it, with the peaks that a layer model needs. Dense peaks;
// planner/cost/systems.cc has the source of each line.
struct SystemSpec {
  absl::string_view name;          // "h200_sxm"
  absl::string_view architecture;  // "sm_90"
  double num_sms = 0;
  double bandwidth_gb_per_s = 0;
  double l2_bytes = 0;
  double fp32_tflop_per_s = 0;  // Vector throughput: SMs times clock.
  double bf16_tflop_per_s = 0;
  double fp8_tflop_per_s = 0;
  double fp4_tflop_per_s = 0;  // 0: no such units.
  // Part of the peak that warp-level mma.sync reaches where the peak needs warp-group instructions.
  double mma_sync_share = 1;
  double link_gb_per_s = 0;  // One direction of a GPU.
  bool has_nvlink = false;
  absl::string_view
      device_name;  // As its driver reports it, or how that begins: "NVIDIA A100-SXM4".

  // Clock in units of the H200's, from vector throughput over SMs.
  double relative_clock() const { return fp32_tflop_per_s / num_sms / (67.0 / 132.0); }
};

// NotFound with the known names and the nearest one.
absl::StatusOr<const SystemSpec*> FindSystem(absl::string_view name);

// The system that a machine's devices are, by the name that their driver gives them; null where
// none is.
const SystemSpec* SystemOfMachine(const Machine& machine);

// Fills the peaks and the link that a GPU found by its driver has no way to report, from the data
// sheet of the system with its device name. The sentence that says so; "" when nothing was filled.
std::string CompleteFromDataSheet(Machine& machine);

// 0 for the same system, small for one architecture, growing with the log distance of the peaks.
double SystemDistance(const SystemSpec& a, const SystemSpec& b);

}  // namespace lastflop
