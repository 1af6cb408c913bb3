#pragma once

#include <optional>

namespace lastflop {

// How far a prediction is from what was measured, relative to the measurement: 883.70 predicted and
// 192.44 measured is +3.59 (+359%). Absent when nothing positive was measured.
std::optional<double> RelativeError(double predicted, double measured);

}  // namespace lastflop
