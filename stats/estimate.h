#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "stats/pair.h"
#include "stats/throttle.h"

// From the pairs of one trial to its figures. docs/measuring.md has one formula per figure.
namespace lastflop {

struct Interval {
  double low = 0;
  double high = 0;
};

struct EstimateOptions {
  double confidence = 0.95;        // Of the interval, in (0, 1).
  double half_width = 0.005;       // Relative; an interval no wider has converged.
  int64_t min_pairs = 0;           // Fewer have not converged, however narrow the interval.
  uint64_t seed = 1;               // Of the bootstrap: equal seeds and pairs give equal figures.
  int num_replicates = 400;        // Of the bootstrap, at least 2; 400 give its error within 4%.
  double max_dropped_share = 0.2;  // Throttled pairs above this share are kept: throttle.h.
  // The share of the error 1 - confidence that this look at the data spends: 1 when they are looked
  // at once; stopping.h says what else. In (0, 1].
  double look_share = 1;
};

// How far the log of a speedup may be from the truth, from two sides. Launches differ, and are few:
// their spread is all there is for it, with Student's t. Draws and pairs are many, and tell that
// launches which agree by luck know no more than their pairs.
struct Uncertainty {
  double launch_standard_error = 0;
  int launch_degrees_of_freedom = 1;  // At least 1.
  double draw_standard_error = 0;
  int draw_degrees_of_freedom = 1;  // At least 1.
  double look_share = 1;            // EstimateOptions::look_share.
};

// Half the width of the interval of the log speedup: the wider of the two sides'. Infinite where it
// exceeds a double.
double LogHalfWidth(const Uncertainty& uncertainty, double confidence);

// The interval of the speedup. Absent where a bound would not be finite and positive.
std::optional<Interval> SpeedupInterval(double log_ratio, const Uncertainty& uncertainty,
                                        double confidence);

// Half the interval's width, relative: exp of half its width in log, less 1.
double RelativeHalfWidth(const Interval& speedup);

// The figures of a trial. No member is ever NaN or infinite.
struct Estimate {
  // Ratio of mean times, baseline over variant: above 1 the variant is faster. Every launch weighs
  // the same in a mean, however many pairs its slice took.
  double speedup = 0;
  // Of the speedup. Absent where the spread between launches is unknown: with one pair or one
  // launch; and where it would be wider than a double.
  std::optional<Interval> interval{};
  int num_pairs = 0;     // That the figures are made from.
  int num_launches = 0;  // That these pairs come from.
  double baseline_mean_us = 0;
  double variant_mean_us = 0;
  double baseline_median_us = 0;
  double variant_median_us = 0;
  double baseline_p99_us = 0;
  double variant_p99_us = 0;
  std::optional<double>
      noise{};  // Standard deviation of one pair's log ratio; absent with one pair.
  // Standard deviation of a launch's log ratio beyond what its pairs' noise explains; 0 where that
  // explains all. Absent with one launch, or one pair in each.
  std::optional<double> launch_spread{};
  // The least relative effect that this measurement would have told from none in 80% of repeats.
  std::optional<double> min_detectable_effect{};
  bool converged = false;  // No wider than options.half_width, from options.min_pairs or more.
  int num_dropped_throttled = 0;
  double throttled_share = 0;         // Of all pairs, dropped or kept.
  bool is_over_throttle_cap = false;  // Throttled pairs were too many to drop.
  ThrottleShares throttle{};          // Of each arm, over all pairs.

  // What multiplicity.h needs to judge the trial at another confidence.
  double log_ratio = 0;                      // Log of the speedup.
  std::optional<Uncertainty> uncertainty{};  // Absent with one launch.
};

struct MeanTimes {
  double baseline_us = 0;
  double variant_us = 0;
};

// Where both arms are the same plan: the mean of both.
inline double StepMicros(const MeanTimes& means) {
  return (means.baseline_us + means.variant_us) / 2;
}

// The means that an estimate of these pairs has: launches weigh the same, throttled pairs are
// dropped up to the cap. Absent without pairs.
std::optional<MeanTimes> MeanTimesOf(
    std::span<const Pair> pairs, double max_dropped_share = EstimateOptions{}.max_dropped_share);

// InvalidArgument: no pairs, a time that is not finite or not within [1e-6, 1e12] us (the message
// names the pair), or an option out of its range.
absl::StatusOr<Estimate> EstimateSpeedup(std::span<const Pair> pairs,
                                         const EstimateOptions& options);

}  // namespace lastflop
