#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gpu/nvml.h"

namespace lastflop {

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
  // Ranges over the samples, for a result's environment.
  std::map<std::string, std::string> Summary() const;

 private:
  struct Range {
    double low = 0;
    double high = 0;
    int64_t count = 0;
    void Add(double value);
    std::string Text() const;
  };

  std::unique_ptr<Nvml> nvml_;
  int gpu_ = -1;
  std::string absence_;
  Range sm_clock_;
  Range memory_clock_;
  Range power_;
  Range temperature_;
  uint64_t reasons_ = 0;
  uint64_t ecc_errors_ = 0;
  int64_t throttled_ = 0;
  int64_t samples_ = 0;
};

}  // namespace lastflop
