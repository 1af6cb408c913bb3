#include "worker/cuda_telemetry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {

void TelemetrySummary::Range::Add(double value) {
  low = count == 0 ? value : std::min(low, value);
  high = count == 0 ? value : std::max(high, value);
  ++count;
}

std::string TelemetrySummary::Range::Text() const {
  if (count == 0) {
    return "n/a";
  }
  return low == high ? absl::StrFormat("%.0f", low) : absl::StrFormat("%.0f-%.0f", low, high);
}

void TelemetrySummary::Add(const GpuTelemetry& now) {
  const auto add = [](Range& range, const auto& value) {
    if (value.has_value()) {
      range.Add(static_cast<double>(*value));
    }
  };
  add(sm_clock_, now.sm_clock_mhz);
  add(memory_clock_, now.memory_clock_mhz);
  add(power_, now.power_w);
  add(temperature_, now.temperature_c);
  if (now.throttle_reasons.has_value()) {
    seen_.throttle_reasons = seen_.throttle_reasons.value_or(0) | *now.throttle_reasons;
    ++num_told_;
    num_throttled_ += now.is_throttled() ? 1 : 0;
  }
  if (now.ecc_errors.has_value()) {
    seen_.ecc_errors = now.ecc_errors;
  }
}

std::map<std::string, std::string> TelemetrySummary::Texts() const {
  return {
      {"sm_clock_mhz", sm_clock_.Text()},
      {"memory_clock_mhz", memory_clock_.Text()},
      {"power_w", power_.Text()},
      {"temperature_c", temperature_.Text()},
      {"throttle_reasons", seen_.ThrottleText()},
      {"throttled_steps", num_told_ == 0 ? "n/a" : absl::StrCat(num_throttled_, " of ", num_told_)},
      {"ecc_uncorrected", seen_.ecc_errors.has_value() ? absl::StrCat(*seen_.ecc_errors) : "n/a"}};
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

void CudaTelemetry::Start() { summary_ = TelemetrySummary(); }

bool CudaTelemetry::Sample() {
  if (nvml_ == nullptr) {
    return false;
  }
  const GpuTelemetry now = nvml_->Read(gpu_);
  summary_.Add(now);
  return now.is_throttled();
}

std::map<std::string, std::string> CudaTelemetry::Summary() const {
  if (nvml_ == nullptr) {
    return {{"telemetry", absl::StrCat("n/a: ", absence_)}};
  }
  std::map<std::string, std::string> texts = summary_.Texts();
  texts["driver"] = nvml_->driver_version();
  return texts;
}

}  // namespace lastflop
