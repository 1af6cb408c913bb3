#include "stats/aa.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "stats/distributions.h"

namespace lastflop {

absl::StatusOr<Interval> ExactBinomialInterval(int num_hits, int num_trials, double confidence) {
  if (num_trials <= 0 || num_hits < 0 || num_hits > num_trials) {
    return absl::InvalidArgumentError(absl::StrCat("binomial interval of ", num_hits, " in ",
                                                   num_trials,
                                                   ": want 0 to n in n trials, n at least 1"));
  }
  if (!(confidence > 0 && confidence < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("binomial interval: confidence=", confidence, ": want between 0 and 1"));
  }
  const double tail = 0.5 * (1 - confidence);
  const double hits = num_hits;
  const double misses = num_trials - num_hits;
  return Interval{.low = num_hits == 0 ? 0 : BetaQuantile(hits, misses + 1, tail),
                  .high = num_hits == num_trials ? 1 : BetaQuantile(hits + 1, misses, 1 - tail)};
}

absl::StatusOr<AaSummary> SummarizeAa(std::span<const Effect> effects, double confidence) {
  const auto count = [&](Effect effect) {
    return static_cast<int>(std::ranges::count(effects, effect));
  };
  AaSummary summary{.num_trials = static_cast<int>(effects.size()),
                    .num_false = count(Effect::kFaster) + count(Effect::kSlower),
                    .num_same = count(Effect::kSame),
                    .num_undecided = count(Effect::kUndecided)};
  LASTFLOP_ASSIGN_OR_RETURN(
      summary.interval, ExactBinomialInterval(summary.num_false, summary.num_trials, confidence));
  summary.false_rate = static_cast<double>(summary.num_false) / summary.num_trials;
  return summary;
}

}  // namespace lastflop
