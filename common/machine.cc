#include "common/machine.h"

#include <cmath>
#include <optional>

#include "common/units.h"

namespace lastflop {

Machine PartOfRank(Machine machine, int64_t num_ranks) {
  if (machine.backend == "cpu") {
    for (ReadCurvePoint& point : machine.cold_read) {
      point.bytes /= static_cast<double>(num_ranks);
    }
    if (machine.measured_bf16_tflop_per_s.has_value()) {
      *machine.measured_bf16_tflop_per_s /= static_cast<double>(num_ranks);
    }
  }
  return machine;
}

std::optional<double> ColdReadMicros(const Machine& machine, double bytes) {
  if (bytes <= 0) {
    return 0.0;
  }
  const auto& curve = machine.cold_read;
  if (curve.empty()) {
    if (!machine.peak_bandwidth_gb_per_s.has_value()) {
      return std::nullopt;
    }
    return bytes / (*machine.peak_bandwidth_gb_per_s * kBytesPerMicroPerGbPerS);
  }
  if (bytes <= curve.front().bytes) {
    // Below the first point the time is proportional to the bytes: a lower bound, which a floor
    // must be.
    return curve.front().us * bytes / curve.front().bytes;
  }
  for (size_t i = 1; i < curve.size(); ++i) {
    if (bytes <= curve[i].bytes) {
      const double share =
          std::log(bytes / curve[i - 1].bytes) / std::log(curve[i].bytes / curve[i - 1].bytes);
      return curve[i - 1].us * std::pow(curve[i].us / curve[i - 1].us, share);
    }
  }
  return curve.back().us * bytes / curve.back().bytes;
}

}  // namespace lastflop
