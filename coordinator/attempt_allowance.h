#pragma once

#include <chrono>

#include "common/campaign.h"
#include "common/trial.h"

// How long an attempt may take, so that one that hangs is told from one that is slow. Pure.
namespace lastflop {

// What an attempt has to do beside its timed sampling, on the rank that it is made for.
struct AttemptNeeds {
  double weight_bytes = 0;  // Of both arms, made anew by a launch.
  double step_flop =
      0;  // Of one step of the slower arm: it is checked, and run before it is timed.
  bool on_cpu = false;
};

// Infinite for a plan that cannot run at all: it is for the worker to say why.
AttemptNeeds NeedsOf(const Campaign& campaign, const TrialSpec& trial, bool on_cpu);

// For what is not timed, as slow hosts do it: several times what was ever seen, at most `at_most`.
std::chrono::milliseconds SetupAllowance(const AttemptNeeds& needs,
                                         std::chrono::milliseconds at_most);

// From the start of an attempt until it hangs: its setup, some minutes for what nobody foresees,
// and several times its share of max_time. Longer than `at_most` by that share alone.
std::chrono::milliseconds AttemptDeadline(const MeasureOptions& measure, const AttemptNeeds& needs,
                                          std::chrono::milliseconds at_most);

// How long after the end of budget.wall an attempt that began before it may still end by itself.
std::chrono::milliseconds WallGrace(const MeasureOptions& measure, const AttemptNeeds& needs,
                                    std::chrono::milliseconds at_most);

}  // namespace lastflop
