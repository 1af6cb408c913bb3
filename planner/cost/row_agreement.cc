#include "planner/cost/row_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "planner/cost/units.h"

namespace lastflop {

RowAgreement AgreementOf(std::span<const double> log_us) {
  const auto [least, most] = std::minmax_element(log_us.begin(), log_us.end());
  double mean = 0;
  for (const double value : log_us) {
    mean += value / static_cast<double>(log_us.size());
  }
  RowAgreement agreement{.us = log_us.size() == 1 ? std::exp(log_us[0]) : std::exp(mean),
                         .origin = "measured"};
  const double apart = std::max(*most - mean, mean - *least);
  agreement.scatter = kMeasuredScatter + apart / kEighty;
  if (*most - *least > kMeasuredScatter) {
    agreement.origin = absl::StrFormat("measured: %d rows that differ by %.3g%%", log_us.size(),
                                       100 * std::expm1(*most - *least));
  }
  return agreement;
}

}  // namespace lastflop
