#pragma once

// Distribution functions that the estimates need, accurate to about 1e-12 and free of tables.
namespace lastflop {

// P(Z <= x) of the standard normal.
double NormalCdf(double x);

// The x with P(Z <= x) = p, for 0 < p < 1.
double NormalQuantile(double p);

// Regularized incomplete beta function I_x(a, b), for a, b > 0 and 0 <= x <= 1.
double IncompleteBeta(double a, double b, double x);

// The x with I_x(a, b) = p, for a, b > 0 and 0 <= p <= 1.
double BetaQuantile(double a, double b, double p);

// P(|T| > t) of Student's t, for t >= 0 and degrees_of_freedom >= 1.
double StudentTwoSidedTail(double t, int degrees_of_freedom);

// The t with P(|T| > t) = tail, for 0 < tail <= 1. Large for small tails: 1 degree of freedom and
// tail 1e-10 give 6e9.
double StudentCriticalValue(double tail, int degrees_of_freedom);

}  // namespace lastflop
