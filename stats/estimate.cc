#include "stats/estimate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "stats/distributions.h"
#include "stats/resample.h"
#include "stats/throttle.h"

namespace lastflop {
namespace {

// A time outside is no time of a step: a tenth of a light-millimetre, two weeks. The bounds also
// keep every sum and ratio below far from overflow.
constexpr double kMinTimeUs = 1e-6;
constexpr double kMaxTimeUs = 1e12;
constexpr double kPower = 0.8;  // Of min_detectable_effect.

absl::Status CheckOptions(const EstimateOptions& options) {
  const auto check = [](bool ok, const char* name, double value, const char* accepted) {
    return ok ? absl::OkStatus()
              : absl::InvalidArgumentError(
                    absl::StrCat("estimate: ", name, "=", value, ": want ", accepted));
  };
  LASTFLOP_RETURN_IF_ERROR(check(options.confidence > 0 && options.confidence < 1, "confidence",
                                 options.confidence, "a number between 0 and 1"));
  LASTFLOP_RETURN_IF_ERROR(check(options.half_width > 0 && std::isfinite(options.half_width),
                                 "half_width", options.half_width, "a positive number"));
  LASTFLOP_RETURN_IF_ERROR(
      check(options.num_replicates >= 2, "num_replicates", options.num_replicates, "at least 2"));
  LASTFLOP_RETURN_IF_ERROR(check(options.max_dropped_share >= 0 && options.max_dropped_share <= 1,
                                 "max_dropped_share", options.max_dropped_share, "0 to 1"));
  return check(options.look_share > 0 && options.look_share <= 1, "look_share", options.look_share,
               "above 0, up to 1");
}

absl::Status CheckTime(double time_us, const char* arm, const Pair& pair, size_t index) {
  if (time_us >= kMinTimeUs && time_us <= kMaxTimeUs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("pair ", index, " (launch ", pair.launch,
                                                 ", draw ", pair.draw, "): ", arm, "=", time_us,
                                                 ": want a time from 1e-6 to 1e12 us"));
}

absl::Status CheckPairs(std::span<const Pair> pairs) {
  if (pairs.empty()) {
    return absl::InvalidArgumentError("estimate of 0 pairs: want at least 1");
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(CheckTime(pairs[i].baseline_us, "baseline_us", pairs[i], i));
    LASTFLOP_RETURN_IF_ERROR(CheckTime(pairs[i].variant_us, "variant_us", pairs[i], i));
  }
  return absl::OkStatus();
}

// Mean over launches of the launch's mean.
double MeanUs(std::span<const Pair> weighed, double Pair::*arm, int num_launches) {
  double sum_us = 0;
  for (const Pair& pair : weighed) {
    sum_us += pair.*arm;
  }
  return sum_us / num_launches;
}

std::vector<double> SortedTimes(std::span<const Pair> pairs, double Pair::*arm) {
  std::vector<double> times;
  times.reserve(pairs.size());
  for (const Pair& pair : pairs) {
    times.push_back(pair.*arm);
  }
  std::ranges::sort(times);
  return times;
}

// Linear between the two order statistics around position p (n - 1).
double SortedQuantile(std::span<const double> sorted, double p) {
  const double position = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

// The standard deviation of one pair's log ratio within launches; over all pairs where each launch
// has one.
std::optional<double> Noise(std::span<const Pair> pairs) {
  if (pairs.size() < 2) {
    return std::nullopt;
  }
  struct Group {
    double sum = 0;
    int n = 0;
  };
  const auto log_ratio = [](const Pair& pair) {
    return std::log(pair.baseline_us / pair.variant_us);
  };
  std::map<int, Group> groups;
  const auto group_of = [&](const Pair& pair) -> Group& { return groups[pair.launch]; };
  for (const Pair& pair : pairs) {
    Group& group = group_of(pair);
    group.sum += log_ratio(pair);
    ++group.n;
  }
  if (groups.size() == pairs.size()) {
    Group all;
    for (const auto& [launch, group] : groups) {
      all.sum += group.sum;
      ++all.n;
    }
    for (auto& [launch, group] : groups) {
      group = all;
    }
  }
  double sum_of_squares = 0;
  for (const Pair& pair : pairs) {
    const Group& group = group_of(pair);
    const double deviation = log_ratio(pair) - group.sum / group.n;
    sum_of_squares += deviation * deviation;
  }
  const size_t num_means = groups.size() == pairs.size() ? 1 : groups.size();
  return std::sqrt(sum_of_squares / static_cast<double>(pairs.size() - num_means));
}

// Needs two launches or more, weighed equally.
Uncertainty UncertaintyOf(std::span<const Pair> pairs, const EstimateOptions& options) {
  const std::vector<PairSums> launches = SumByLaunch(pairs);
  const std::vector<PairSums> draws = SumByDraw(pairs);
  const double pair_variance = PairVariance(pairs);
  // With one draw alone, its pairs are what varies.
  const bool has_draws = draws.size() > 1;
  const double draw_variance =
      has_draws ? DrawVariance(draws, options.num_replicates, options.seed) : pair_variance;
  const size_t num_units = has_draws ? draws.size() : pairs.size();

  Uncertainty uncertainty{.launch_degrees_of_freedom = static_cast<int>(launches.size()) - 1,
                          .draw_standard_error = std::sqrt(draw_variance),
                          .draw_degrees_of_freedom = static_cast<int>(num_units) - 1,
                          .look_share = options.look_share};
  double variance = LaunchVariance(launches);
  if (has_draws && draws.size() < pairs.size()) {
    // Launches that shared their draws agree on what these draws had in common.
    variance += std::max(0.0, draw_variance - pair_variance);
    uncertainty.launch_degrees_of_freedom =
        std::min(uncertainty.launch_degrees_of_freedom, uncertainty.draw_degrees_of_freedom);
  }
  uncertainty.launch_standard_error = std::sqrt(variance);
  return uncertainty;
}

// Of launches weighed equally.
std::optional<double> LaunchSpread(std::span<const Pair> pairs) {
  const std::vector<PairSums> launches = SumByLaunch(pairs);
  if (launches.size() < 2 || launches.size() == pairs.size()) {
    return std::nullopt;
  }
  return std::sqrt(std::max(0.0, LaunchVariance(launches) - PairVariance(pairs)) *
                   static_cast<double>(launches.size()));
}

// The effect whose interval clears zero in kPower of repeats.
std::optional<double> MinDetectableEffect(const Uncertainty& uncertainty, double confidence) {
  const double standard_error =
      std::max(uncertainty.launch_standard_error, uncertainty.draw_standard_error);
  const double effect =
      std::expm1(LogHalfWidth(uncertainty, confidence) + NormalQuantile(kPower) * standard_error);
  return std::isfinite(effect) ? std::optional(effect) : std::nullopt;
}

MeanTimes MeansOf(std::span<const Pair> weighed, int num_launches) {
  return {.baseline_us = MeanUs(weighed, &Pair::baseline_us, num_launches),
          .variant_us = MeanUs(weighed, &Pair::variant_us, num_launches)};
}

// A cap of 1 lets every pair be dropped; an estimate still needs one.
std::span<const Pair> UsedOf(std::span<const Pair> pairs, const KeptPairs& kept) {
  return kept.pairs.empty() ? pairs : std::span(kept.pairs);
}

}  // namespace

std::optional<MeanTimes> MeanTimesOf(std::span<const Pair> pairs, double max_dropped_share) {
  if (pairs.empty()) {
    return std::nullopt;
  }
  const KeptPairs kept = DropThrottled(pairs, max_dropped_share);
  const std::span<const Pair> used = UsedOf(pairs, kept);
  return MeansOf(WeighLaunchesEqually(used), static_cast<int>(SumByLaunch(used).size()));
}

absl::StatusOr<Estimate> EstimateSpeedup(std::span<const Pair> pairs,
                                         const EstimateOptions& options) {
  LASTFLOP_RETURN_IF_ERROR(CheckOptions(options));
  LASTFLOP_RETURN_IF_ERROR(CheckPairs(pairs));
  const KeptPairs kept = DropThrottled(pairs, options.max_dropped_share);
  const std::span<const Pair> used = UsedOf(pairs, kept);

  const std::vector<Pair> weighed = WeighLaunchesEqually(used);
  const auto num_launches = static_cast<int>(SumByLaunch(used).size());
  const auto [baseline_mean_us, variant_mean_us] = MeansOf(weighed, num_launches);
  const std::vector<double> baseline_us = SortedTimes(used, &Pair::baseline_us);
  const std::vector<double> variant_us = SortedTimes(used, &Pair::variant_us);
  Estimate estimate{.speedup = baseline_mean_us / variant_mean_us,
                    .num_pairs = static_cast<int>(used.size()),
                    .num_launches = num_launches,
                    .baseline_mean_us = baseline_mean_us,
                    .variant_mean_us = variant_mean_us,
                    .baseline_median_us = SortedQuantile(baseline_us, 0.5),
                    .variant_median_us = SortedQuantile(variant_us, 0.5),
                    .baseline_p99_us = SortedQuantile(baseline_us, 0.99),
                    .variant_p99_us = SortedQuantile(variant_us, 0.99),
                    .noise = Noise(used),
                    .num_dropped_throttled = static_cast<int>(pairs.size() - used.size()),
                    .throttled_share = kept.throttled_share,
                    .is_over_throttle_cap = kept.is_over_cap || kept.pairs.empty(),
                    .throttle = CompareThrottle(pairs),
                    .log_ratio = std::log(baseline_mean_us / variant_mean_us)};
  if (estimate.num_launches < 2) {
    return estimate;
  }
  estimate.launch_spread = LaunchSpread(weighed);
  estimate.uncertainty = UncertaintyOf(weighed, options);
  estimate.min_detectable_effect = MinDetectableEffect(*estimate.uncertainty, options.confidence);
  estimate.interval =
      SpeedupInterval(estimate.log_ratio, *estimate.uncertainty, options.confidence);
  estimate.converged = estimate.interval &&
                       RelativeHalfWidth(*estimate.interval) <= options.half_width &&
                       estimate.num_pairs >= options.min_pairs;
  return estimate;
}

double LogHalfWidth(const Uncertainty& uncertainty, double confidence) {
  const double error = (1 - confidence) * uncertainty.look_share;
  const auto half_width = [error](double standard_error, int degrees_of_freedom) {
    // An exact zero stays one, however few the degrees of freedom.
    return standard_error > 0 ? standard_error * StudentCriticalValue(error, degrees_of_freedom)
                              : 0;
  };
  return std::max(
      half_width(uncertainty.launch_standard_error, uncertainty.launch_degrees_of_freedom),
      half_width(uncertainty.draw_standard_error, uncertainty.draw_degrees_of_freedom));
}

std::optional<Interval> SpeedupInterval(double log_ratio, const Uncertainty& uncertainty,
                                        double confidence) {
  const double half_width = LogHalfWidth(uncertainty, confidence);
  const Interval interval{.low = std::exp(log_ratio - half_width),
                          .high = std::exp(log_ratio + half_width)};
  if (!(interval.low > 0) || !std::isfinite(interval.high)) {
    return std::nullopt;
  }
  return interval;
}

double RelativeHalfWidth(const Interval& speedup) {
  return std::sqrt(speedup.high) / std::sqrt(speedup.low) - 1;
}

}  // namespace lastflop
