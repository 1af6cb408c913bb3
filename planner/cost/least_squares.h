#pragma once

#include <functional>
#include <span>
#include <vector>

namespace lastflop {

// A least-squares problem in few parameters with a normal prior on each.
struct FitProblem {
  std::vector<double> prior_mean;
  std::vector<double> prior_deviation;
  double residual_scale = 0.05;  // Residuals beyond it count by their size, not their square.
  double prior_weight = 1;       // Of the squared prior terms.
  size_t num_rows = 0;
  // Writes one residual a row for `parameters`; `residuals` has num_rows values.
  std::function<void(std::span<const double> parameters, std::span<double> residuals)> residuals;
};

// The parameters with the least sum of soft-L1 residuals, starting from the prior's means:
// Levenberg-Marquardt with numeric derivatives and rows reweighted each step. The prior's means
// where there are no rows.
std::vector<double> FitLeastSquares(const FitProblem& problem);

}  // namespace lastflop
