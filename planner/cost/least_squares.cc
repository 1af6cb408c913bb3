#include "planner/cost/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lastflop {
namespace {

constexpr int kMaxSteps = 60;
constexpr double kDifference = 1e-5;
constexpr double kEnough = 1e-7;  // Relative gain under which a step is the last one.

using Matrix = std::vector<std::vector<double>>;

// Solves the symmetric positive definite `a` x = b in place; false when it is not definite.
bool SolveCholesky(Matrix a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k) {
      a[j][j] -= a[j][k] * a[j][k];
    }
    if (!(a[j][j] > 0)) {
      return false;
    }
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) {
        a[i][j] -= a[i][k] * a[j][k];
      }
      a[i][j] /= a[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) {
      b[i] -= a[i][k] * b[k];
    }
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) {
      b[i] -= a[k][i] * b[k];
    }
    b[i] /= a[i][i];
  }
  return true;
}

class Fit {
 public:
  explicit Fit(const FitProblem& problem)
      : problem_(problem),
        parameters_(problem.prior_mean),
        residuals_(problem.num_rows),
        shifted_(problem.num_rows) {}

  std::vector<double> Run() {
    double cost = CostOf(parameters_);
    double damping = 1e-2;
    for (int step = 0; step < kMaxSteps; ++step) {
      Matrix normal;
      std::vector<double> gradient;
      Linearize(normal, gradient);
      bool improved = false;
      for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
        Matrix damped = normal;
        for (size_t i = 0; i < gradient.size(); ++i) {
          damped[i][i] *= 1 + damping;
        }
        std::vector<double> move = gradient;
        std::vector<double> moved = parameters_;
        if (SolveCholesky(damped, move)) {
          for (size_t i = 0; i < moved.size(); ++i) {
            moved[i] -= std::clamp(move[i], -1.0, 1.0);
          }
          if (const double moved_cost = CostOf(moved); moved_cost < cost) {
            improved = cost - moved_cost > kEnough * cost;
            parameters_ = moved;
            cost = moved_cost;
            damping = std::max(damping / 5, 1e-9);
            if (!improved) {
              return parameters_;
            }
            break;
          }
        }
        damping *= 4;
      }
      if (!improved) {
        break;
      }
    }
    return parameters_;
  }

 private:
  double CostOf(const std::vector<double>& parameters) {
    problem_.residuals(parameters, shifted_);
    double cost = 0;
    for (const double residual : shifted_) {
      const double z = residual / problem_.residual_scale;
      cost += 2 * (std::sqrt(1 + z * z) - 1);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double z = (parameters[i] - problem_.prior_mean[i]) / problem_.prior_deviation[i];
      cost += problem_.prior_weight * z * z;
    }
    return cost;
  }

  // Gauss-Newton's matrix and half the gradient, with the soft-L1 weight of each row.
  void Linearize(Matrix& normal, std::vector<double>& gradient) {
    const size_t n = parameters_.size();
    problem_.residuals(parameters_, residuals_);
    std::vector<std::vector<double>> slopes(n, std::vector<double>(problem_.num_rows));
    for (size_t i = 0; i < n; ++i) {
      std::vector<double> moved = parameters_;
      moved[i] += kDifference;
      problem_.residuals(moved, slopes[i]);
      for (size_t row = 0; row < problem_.num_rows; ++row) {
        slopes[i][row] = (slopes[i][row] - residuals_[row]) / kDifference;
      }
    }
    normal.assign(n, std::vector<double>(n, 0));
    gradient.assign(n, 0);
    const double scale = problem_.residual_scale;
    for (size_t row = 0; row < problem_.num_rows; ++row) {
      const double z = residuals_[row] / scale;
      const double weight = 1 / (scale * scale * std::sqrt(1 + z * z));
      for (size_t i = 0; i < n; ++i) {
        gradient[i] += weight * slopes[i][row] * residuals_[row];
        for (size_t j = 0; j <= i; ++j) {
          normal[i][j] += weight * slopes[i][row] * slopes[j][row];
        }
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const double precision =
          problem_.prior_weight / (problem_.prior_deviation[i] * problem_.prior_deviation[i]);
      normal[i][i] += precision;
      gradient[i] += precision * (parameters_[i] - problem_.prior_mean[i]);
    }
  }

  const FitProblem& problem_;  // Outlives this.
  std::vector<double> parameters_;
  std::vector<double> residuals_;
  std::vector<double> shifted_;
};

}  // namespace

std::vector<double> FitLeastSquares(const FitProblem& problem) {
  return problem.num_rows == 0 ? problem.prior_mean : Fit(problem).Run();
}

}  // namespace lastflop
