#include "stats/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace lastflop {
namespace {

// From here on Student's t and the normal differ by less than a double's rounding matters here.
constexpr int kNormalDegreesOfFreedom = 1'000'000;

// The continued fraction of I_x(a, b) (Abramowitz and Stegun 26.5.8), by Lentz's method; converges
// fast for x < (a + 1) / (a + b + 2).
double BetaContinuedFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxTerms = 10'000;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    const double change = d * c;
    result *= change;
    if (std::abs(change - 1) < 1e-15) {
      break;
    }
  }
  return result;
}

// The root of `increasing` between `low` and `high`, to the last bit that a midpoint can reach.
template <typename Function>
double Bisect(double low, double high, Function increasing) {
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    if (middle <= low || middle >= high) {
      break;
    }
    (increasing(middle) < 0 ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double NormalQuantile(double p) {
  if (p > 0.5) {
    return -NormalQuantile(1 - p);  // The lower tail keeps its relative accuracy.
  }
  return Bisect(-40, 0, [p](double x) { return NormalCdf(x) - p; });
}

double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) {
    return 0;
  }
  if (x >= 1) {
    return 1;
  }
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  if (x < (a + 1) / (a + b + 2)) {
    return std::exp(log_front) * BetaContinuedFraction(a, b, x) / a;
  }
  return 1 - std::exp(log_front) * BetaContinuedFraction(b, a, 1 - x) / b;
}

double BetaQuantile(double a, double b, double p) {
  if (p <= 0) {
    return 0;
  }
  if (p >= 1) {
    return 1;
  }
  return Bisect(0, 1, [=](double x) { return IncompleteBeta(a, b, x) - p; });
}

double StudentTwoSidedTail(double t, int degrees_of_freedom) {
  if (t <= 0) {
    return 1;
  }
  if (degrees_of_freedom >= kNormalDegreesOfFreedom) {
    return std::erfc(t / std::numbers::sqrt2);
  }
  const double df = degrees_of_freedom;
  if (t > 1e150) {
    return 0;  // t * t would overflow.
  }
  return IncompleteBeta(0.5 * df, 0.5, df / (df + t * t));
}

double StudentCriticalValue(double tail, int degrees_of_freedom) {
  if (tail >= 1) {
    return 0;
  }
  if (degrees_of_freedom == 1) {
    return 1 / std::tan(0.5 * std::numbers::pi * tail);
  }
  if (degrees_of_freedom == 2) {
    return (1 - tail) * std::sqrt(2 / (tail * (2 - tail)));
  }
  // In log t: the quantile spans many decades at few degrees of freedom.
  const double log_t = Bisect(-40, 345, [=](double candidate) {
    return tail - StudentTwoSidedTail(std::exp(candidate), degrees_of_freedom);
  });
  return std::exp(log_t);
}

}  // namespace lastflop
