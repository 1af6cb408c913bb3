#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpu/nvml.h"

namespace lastflop {

// What a number of readings of a GPU say together. What the driver did not say is n/a, and never
// "none" or 0.
class TelemetrySummary {
 public:
  void Add(const GpuTelemetry& now);
  // For a result's environment.
  std::map<std::string, std::string> Texts() const;

 private:
  struct Range {
    double low = 0;
    double high = 0;
    int64_t count = 0;
    void Add(double value);
    std::string Text() const;
  };

  Range sm_clock_;
  Range memory_clock_;
  Range power_;
  Range temperature_;
  GpuTelemetry seen_;          // Every reason that held, and the last count of errors.
  int64_t num_told_ = 0;       // Readings of which it is known whether the clock was held down.
  int64_t num_throttled_ = 0;  // Of these.
};

// What NVML says of the device while an attempt samples. Without NVML nothing is known and nothing
// counts as throttled.
class CudaTelemetry {
 public:
  // `uuid`: "GPU-...".
  explicit CudaTelemetry(const std::string& uuid);

  // Forgets what was seen: a new attempt.
  void Start();
  // Reads once; true when the clock is held down.
  bool Sample();
  // Of the samples, for a result's environment.
  std::map<std::string, std::string> Summary() const;

 private:
  std::unique_ptr<Nvml> nvml_;
  int gpu_ = -1;
  std::string absence_;
  TelemetrySummary summary_;
};

}  // namespace lastflop
