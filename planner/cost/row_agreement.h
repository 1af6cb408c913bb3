#pragma once

#include <span>
#include <string>

namespace lastflop {

// Relative deviation of a measured row that nothing contradicts.
inline constexpr double kMeasuredScatter = 0.03;

// Rows that are the same to the model, and need not agree: other versions, other days.
struct RowAgreement {
  double us = 0;  // The geometric mean.
  // Relative deviation: the interval made of it (units.h, kEighty) holds all of them.
  double scatter = kMeasuredScatter;
  std::string origin;  // "measured", or "measured: 2 rows that differ by 24%".
};

// `log_us` of at least one row.
RowAgreement AgreementOf(std::span<const double> log_us);

}  // namespace lastflop
