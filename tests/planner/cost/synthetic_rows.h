#pragma once

#include <string>
#include <vector>

#include "planner/cost/measured_rows.h"

namespace lastflop {

// A row of a made-up model with 64 experts of 1024, top-4, without a latency.
MoeLayerRow SyntheticRow(const std::string& system, int64_t tp, int64_t ep, int64_t tokens);

// Rows over tp, ep and tokens that a curve other than the priors made: launches of 40 us, weights
// unpacked at half of the usual rate, and noise of 2% that depends on the row.
std::vector<MoeLayerRow> SyntheticCalibration(const std::string& system);

}  // namespace lastflop
