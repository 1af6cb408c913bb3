#include "stats/drift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

namespace lastflop {
namespace {

constexpr size_t kMinPairsForDrift = 8;

template <typename Value>
std::map<int, std::vector<double>> ByLaunch(std::span<const Pair> pairs, Value value) {
  std::map<int, std::vector<double>> series;
  for (const Pair& pair : pairs) {
    series[pair.launch].push_back(value(pair));
  }
  return series;
}

struct Moments {
  double mean = 0;
  double variance_of_mean = 0;
};

Moments MomentsOf(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Moments moments;
  for (const double value : values) {
    moments.mean += value / n;
  }
  for (const double value : values) {
    moments.variance_of_mean += (value - moments.mean) * (value - moments.mean) / (n * (n - 1));
  }
  return moments;
}

// Within-launch deviations of log(baseline / variant), launch by launch.
std::vector<std::vector<double>> LogRatioDeviations(std::span<const Pair> pairs) {
  std::vector<std::vector<double>> deviations;
  const auto log_ratio = [](const Pair& pair) {
    return std::log(pair.baseline_us / pair.variant_us);
  };
  for (auto& [launch, series] : ByLaunch(pairs, log_ratio)) {
    const double mean = MomentsOf(series).mean;
    for (double& value : series) {
      value -= mean;
    }
    deviations.push_back(std::move(series));
  }
  return deviations;
}

// Sum over launches of products of deviations `lag` apart.
double Autocovariance(const std::vector<std::vector<double>>& deviations, size_t lag) {
  double sum = 0;
  for (const std::vector<double>& series : deviations) {
    for (size_t i = lag; i < series.size(); ++i) {
      sum += series[i] * series[i - lag];
    }
  }
  return sum;
}

}  // namespace

std::optional<Drift> BaselineDrift(std::span<const Pair> pairs) {
  double log_change = 0;
  double variance = 0;
  double num_launches = 0;
  const auto log_time = [](const Pair& pair) { return std::log(pair.baseline_us); };
  for (const auto& [launch, series] : ByLaunch(pairs, log_time)) {
    if (series.size() < kMinPairsForDrift) {
      continue;
    }
    const std::span<const double> all(series);
    const Moments first = MomentsOf(all.first(series.size() / 4));
    const Moments last = MomentsOf(all.last(series.size() / 4));
    log_change += last.mean - first.mean;
    variance += last.variance_of_mean + first.variance_of_mean;
    ++num_launches;
  }
  if (num_launches == 0) {
    return std::nullopt;
  }
  const double relative = std::expm1(log_change / num_launches);
  return Drift{.relative = relative,
               .standard_error = (1 + relative) * std::sqrt(variance) / num_launches};
}

bool DriftExceeds(const Drift& drift, double gain) {
  return std::abs(drift.relative) > std::max(std::abs(gain), 2 * drift.standard_error);
}

std::optional<double> LogRatioAutocorrelation(std::span<const Pair> pairs) {
  const auto deviations = LogRatioDeviations(pairs);
  const auto is_long = [](const std::vector<double>& series) { return series.size() >= 3; };
  const double variance = Autocovariance(deviations, 0);
  if (!std::ranges::any_of(deviations, is_long) || !(variance > 0)) {
    return std::nullopt;
  }
  return std::clamp(Autocovariance(deviations, 1) / variance, -1.0, 1.0);
}

double EffectiveSampleSize(std::span<const Pair> pairs) {
  const auto n = static_cast<double>(pairs.size());
  if (pairs.size() < 3) {
    return n;
  }
  const auto deviations = LogRatioDeviations(pairs);
  const double variance = Autocovariance(deviations, 0);
  if (!(variance > 0)) {
    return n;
  }
  // Geyer's initial positive sequence: lags are added two by two until their sum is noise.
  double time = -1;
  for (size_t lag = 0; lag + 1 < pairs.size(); lag += 2) {
    const double both =
        (Autocovariance(deviations, lag) + Autocovariance(deviations, lag + 1)) / variance;
    if (!(both > 0)) {
      break;
    }
    time += 2 * both;
  }
  return std::clamp(n / std::max(time, 1.0), 1.0, n);
}

}  // namespace lastflop
