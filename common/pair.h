#pragma once

#include <cstdint>

namespace lastflop {

// One baseline and one variant sample from the same routing draw, layer rotation and inputs.
struct Pair {
  int launch = 0;
  int64_t draw = 0;
  double baseline_us = 0;
  double variant_us = 0;
  bool throttled = false;  // Either arm ran while the device was throttled.
  // Which arm: both false beside `throttled` where that was not stored (a database of before schema
  // 4, a worker of before these fields).
  bool baseline_throttled = false;
  bool variant_throttled = false;
};

}  // namespace lastflop
