#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lastflop {

// One MoE layer call as others measure it: top-k, sort, both products, activation, weighted sum.
struct MoeLayerRow {
  std::string system;
  std::string framework;
  std::string version;
  std::string kernel_source;
  std::string dtype;  // int4_wo | fp8_block | fp8 | nvfp4 | mxfp4 | bf16
  int64_t hidden = 0;
  int64_t inter = 0;  // Whole; a rank has inter / tp.
  int64_t experts = 0;
  int64_t topk = 0;
  int64_t tp = 1;
  int64_t ep = 1;
  std::string distribution;  // balanced | uniform | power_law_A | zipf_S
  int64_t tokens = 0;        // Of the whole batch. A rank of `ep` is the most loaded one.
  std::optional<double> latency_us;
  bool warm = false;   // The call was replayed without an L2 flush.
  std::string origin;  // Where a calibration row is from.
};

// One all-reduce of `bytes` over `gpus` ranks.
struct AllReduceRow {
  std::string system;
  std::string source;
  std::string kernel;
  int64_t gpus = 0;
  double bytes = 0;
  std::optional<double> latency_us;
  std::string origin;
};

// A prediction of a row, with the interval that holds about four of five measurements.
struct RowPrediction {
  double us = 0;
  double low_us = 0;
  double high_us = 0;
  double floor_us = 0;
  // "measured", "interpolated", "modelled" or "assumed", and what it is from where that is another
  // system or kernel: "assumed: curves of h200_sxm scaled".
  std::string origin;
};

}  // namespace lastflop
