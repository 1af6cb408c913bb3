#include "tests/planner/cost/synthetic_rows.h"

#include <cmath>

#include "planner/cost/moe_curve.h"

namespace lastflop {

MoeLayerRow SyntheticRow(const std::string& system, int64_t tp, int64_t ep, int64_t tokens) {
  MoeLayerRow row;
  row.system = system;
  row.framework = "made_up";
  row.version = "1";
  row.kernel_source = "made_up_marlin";
  row.dtype = "int4_wo";
  row.hidden = 4096;
  row.inter = 1024;
  row.experts = 64;
  row.topk = 4;
  row.tp = tp;
  row.ep = ep;
  row.distribution = "balanced";
  row.tokens = tokens;
  return row;
}

std::vector<MoeLayerRow> SyntheticCalibration(const std::string& system) {
  MoeParameters truth = PriorMean("int4_wo");
  truth[0] = std::log(40);
  truth[2] += std::log(0.5);
  std::vector<MoeLayerRow> rows;
  for (const auto& [tp, ep] : {std::pair{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8}}) {
    for (int64_t tokens = 1; tokens <= 1024; tokens *= 4) {
      MoeLayerRow row = SyntheticRow(system, tp, ep, tokens);
      const double noise = 0.02 * std::sin(static_cast<double>(tokens) + 3 * tp + 5 * ep);
      row.latency_us = MoeLayerMicros(*WorkOfRow(row), truth) * (1 + noise);
      row.origin = "made up";
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace lastflop
