#pragma once

#include "common/machine.h"

namespace lastflop {

// Eight H200s, as experiments/machines/h200-x8.yaml has them.
inline Machine H200x8() {
  Machine machine;
  machine.name = "h200-x8";
  machine.backend = "cuda";
  machine.device_name = "NVIDIA H200";
  machine.architecture = "sm_90a";
  machine.num_devices = 8;
  machine.memory_bytes = 149250113536;
  machine.l2_bytes = 62914560;
  machine.peak_bandwidth_gb_per_s = 4800;
  machine.peak_bf16_tflop_per_s = 989;
  machine.link = "nvlink";
  machine.link_gb_per_s = 450;
  machine.collective_latency_us = 20;
  return machine;
}

}  // namespace lastflop
