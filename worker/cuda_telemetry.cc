#include "worker/cuda_telemetry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {

void CudaTelemetry::Range::Add(double value) {
  low = count == 0 ? value : std::min(low, value);
  high = count == 0 ? value : std::max(high, value);
  ++count;
}

std::string CudaTelemetry::Range::Text() const {
  if (count == 0) {
    return "n/a";
  }
  return low == high ? absl::StrFormat("%.0f", low) : absl::StrFormat("%.0f-%.0f", low, high);
}

CudaTelemetry::CudaTelemetry(const std::string& uuid) {
  auto nvml = Nvml::Create();
  if (!nvml.ok()) {
    absence_ = std::string(nvml.status().message());
    return;
  }
  const auto gpu = (*nvml)->FindUuid(uuid);
  if (!gpu.ok()) {
    absence_ = std::string(gpu.status().message());
    return;
  }
  nvml_ = *std::move(nvml);
  gpu_ = *gpu;
}

void CudaTelemetry::Start() {
  sm_clock_ = memory_clock_ = power_ = temperature_ = Range{};
  reasons_ = 0;
  throttled_ = 0;
  samples_ = 0;
}

bool CudaTelemetry::Sample() {
  if (nvml_ == nullptr) {
    return false;
  }
  const GpuTelemetry now = nvml_->Read(gpu_);
  const auto add = [](Range& range, const auto& value) {
    if (value.has_value()) {
      range.Add(static_cast<double>(*value));
    }
  };
  add(sm_clock_, now.sm_clock_mhz);
  add(memory_clock_, now.memory_clock_mhz);
  add(power_, now.power_w);
  add(temperature_, now.temperature_c);
  reasons_ |= now.throttle_reasons.value_or(0);
  ecc_errors_ = now.ecc_errors.value_or(0);
  ++samples_;
  throttled_ += now.is_throttled() ? 1 : 0;
  return now.is_throttled();
}

std::map<std::string, std::string> CudaTelemetry::Summary() const {
  if (nvml_ == nullptr) {
    return {{"telemetry", absl::StrCat("n/a: ", absence_)}};
  }
  GpuTelemetry seen;
  seen.throttle_reasons = reasons_;
  return {{"driver", nvml_->driver_version()},
          {"sm_clock_mhz", sm_clock_.Text()},
          {"memory_clock_mhz", memory_clock_.Text()},
          {"power_w", power_.Text()},
          {"temperature_c", temperature_.Text()},
          {"throttle_reasons", seen.ThrottleText()},
          {"throttled_steps", absl::StrCat(throttled_, " of ", samples_)},
          {"ecc_uncorrected", absl::StrCat(ecc_errors_)}};
}

}  // namespace lastflop
