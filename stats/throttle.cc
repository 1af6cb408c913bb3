#include "stats/throttle.h"

#include <algorithm>
#include <cmath>

namespace lastflop {
namespace {

constexpr double kSignificance = 0.05;

std::optional<double> Share(const ThrottleCount& count) {
  if (count.num_samples <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(count.num_throttled) / count.num_samples;
}

double LogChoose(int n, int k) {
  return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0);
}

// Fisher's exact two-sided p: the probability of all splits of the throttled samples over the arms
// that are no likelier than the one seen.
double FisherTail(const ThrottleCount& a, const ThrottleCount& b) {
  const int num_samples = a.num_samples + b.num_samples;
  const int num_throttled = a.num_throttled + b.num_throttled;
  const auto log_probability = [&](int in_a) {
    return LogChoose(a.num_samples, in_a) + LogChoose(b.num_samples, num_throttled - in_a) -
           LogChoose(num_samples, num_throttled);
  };
  constexpr double kRounding = 1e-9;
  const double seen = log_probability(a.num_throttled) + kRounding;
  double tail = 0;
  for (int in_a = std::max(0, num_throttled - b.num_samples);
       in_a <= std::min(num_throttled, a.num_samples); ++in_a) {
    const double candidate = log_probability(in_a);
    tail += candidate <= seen ? std::exp(candidate) : 0;
  }
  return std::min(tail, 1.0);
}

}  // namespace

KeptPairs DropThrottled(std::span<const Pair> pairs, double max_dropped_share) {
  const auto num_throttled = std::ranges::count(pairs, true, &Pair::throttled);
  KeptPairs kept;
  if (!pairs.empty()) {
    kept.throttled_share = static_cast<double>(num_throttled) / static_cast<double>(pairs.size());
  }
  kept.is_over_cap = kept.throttled_share > max_dropped_share;
  for (const Pair& pair : pairs) {
    if (kept.is_over_cap || !pair.throttled) {
      kept.pairs.push_back(pair);
    }
  }
  kept.num_dropped = static_cast<int>(pairs.size() - kept.pairs.size());
  return kept;
}

ThrottleShares CompareThrottle(const ThrottleCount& baseline, const ThrottleCount& variant) {
  ThrottleShares shares{.baseline = Share(baseline), .variant = Share(variant)};
  if (shares.baseline && shares.variant) {
    shares.is_power_limited = FisherTail(baseline, variant) < kSignificance;
  }
  return shares;
}

ThrottleShares CompareThrottle(std::span<const Pair> pairs) {
  const auto num_pairs = static_cast<int>(pairs.size());
  ThrottleCount baseline{.num_samples = num_pairs};
  ThrottleCount variant{.num_samples = num_pairs};
  for (const Pair& pair : pairs) {
    if (pair.throttled && !pair.baseline_throttled && !pair.variant_throttled) {
      return {};
    }
    baseline.num_throttled += pair.baseline_throttled ? 1 : 0;
    variant.num_throttled += pair.variant_throttled ? 1 : 0;
  }
  return CompareThrottle(baseline, variant);
}

}  // namespace lastflop
