#pragma once

#include <chrono>
#include <functional>

#include "absl/strings/string_view.h"
#include "collectives/gang.h"
#include "common/attempt.h"
#include "common/campaign.h"
#include "common/trial.h"
#include "worker/arm.h"
#include "worker/stop_rule.h"

namespace lastflop {

// What watchers see while an attempt runs. `speedup` is 0 until there are pairs.
using ProgressFunction =
    std::function<void(absl::string_view stage, int64_t pairs, double speedup)>;

// Monotonic seconds; a parameter, so that tests own time.
using SecondsFunction = std::function<double()>;

struct AttemptInputs {
  const Campaign& campaign;  // Outlives the call.
  const LaunchSpec& launch;
  const AttemptSpec& attempt;
  StopRule stop;
  ProgressFunction progress;
  SecondsFunction now_s;
};

// Runs one attempt on this rank: prepare both arms, check, sample pairs, check again, break down
// (DESIGN section 4). All ranks of the gang call it with equal inputs and stay in step; a failure
// on any rank is every rank's result. Blocks until done. Never throws away a failure: it is in
// `AttemptResult::failure`, and then no sample is given.
AttemptResult RunAttempt(Backend& backend, Gang& gang, const AttemptInputs& inputs);

// One decode step of each arm as comparable times, both per `baseline_tokens` output tokens:
// speculation adds its drafts (each `draft_cost` of the baseline's raw step) and divides by the
// tokens it yields. Exposed for tests.
struct ComparableTimes {
  double baseline_us = 0;
  double variant_us = 0;
};
ComparableTimes MakeComparable(double raw_baseline_us, double raw_variant_us, const Plan& baseline,
                               const Plan& variant, double baseline_tokens, double variant_tokens);

}  // namespace lastflop
