#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "common/words.h"
#include "stats/estimate.h"

// A/A trials: the same plan under two names. Every difference found is false.
// docs/measuring.md, "A/A".
namespace lastflop {

// Clopper and Pearson's exact interval of the probability behind num_hits in num_trials.
// InvalidArgument unless 0 <= num_hits <= num_trials, num_trials > 0 and 0 < confidence < 1.
absl::StatusOr<Interval> ExactBinomialInterval(int num_hits, int num_trials, double confidence);

struct AaSummary {
  int num_trials = 0;
  int num_false = 0;  // Called faster or slower.
  int num_same = 0;
  int num_undecided = 0;
  double false_rate = 0;  // num_false / num_trials.
  Interval interval{};    // Exact, of the probability of a false difference.
};

// InvalidArgument: no effects, or a confidence out of (0, 1).
absl::StatusOr<AaSummary> SummarizeAa(std::span<const Effect> effects, double confidence);

}  // namespace lastflop
