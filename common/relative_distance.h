#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace lastflop {

// ||got - wanted|| / ||wanted|| over the leading elements that both have. Not a number where any of
// them is none; infinite where something stands for nothing but zeros.
inline double RelativeDistance(std::span<const float> got, std::span<const float> wanted) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    const double error = static_cast<double>(got[i]) - wanted[i];
    difference += error * error;
    norm += static_cast<double>(wanted[i]) * wanted[i];
  }
  if (norm == 0) {
    return difference == 0 ? 0 : std::sqrt(difference) * std::numeric_limits<double>::infinity();
  }
  return std::sqrt(difference / norm);
}

}  // namespace lastflop
