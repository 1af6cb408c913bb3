#include "planner/accuracy.h"

#include <cmath>

namespace lastflop {

std::optional<double> RelativeError(double predicted, double measured) {
  if (!std::isfinite(predicted) || !std::isfinite(measured) || !(measured > 0)) {
    return std::nullopt;
  }
  return predicted / measured - 1;
}

}  // namespace lastflop
