#include "coordinator/attempt_allowance.h"

#include <algorithm>
#include <limits>

#include "step/make_step.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;

// A tenth of what hosts do that nothing else uses: 3.5 GB/s of weights on an H200, 0.5 on a core.
constexpr double kCpuBytesPerS = 50e6;
constexpr double kGpuBytesPerS = 500e6;
constexpr double kCpuFlopPerS = 1e9;
constexpr double kGpuFlopPerS = 1e12;
constexpr double kUntimedSteps = 10;  // Checks before and after, warming up, the breakdown.
constexpr int kTimedShare = 4;        // Both arms' inputs are drawn between the samples.
constexpr milliseconds kUnforeseen{5 * 60 * 1000};
constexpr milliseconds kLeastGrace{30 * 1000};

// Of rank 0, with every token at its experts and every expert in use.
double FlopOf(const Campaign& campaign, const Plan& plan, const Point& point) {
  StepOptions options{.layers_kept = campaign.layers_kept};
  const absl::StatusOr<Step> whole = MakeStep(campaign.model, plan, point, /*rank=*/0, options);
  if (!whole.ok()) {
    return std::numeric_limits<double>::infinity();
  }
  const auto num_tokens = static_cast<double>(whole->num_tokens);
  options.load = {.pairs = num_tokens * static_cast<double>(campaign.model.top_k),
                  .unique_experts = static_cast<double>(campaign.model.num_experts)};
  const absl::StatusOr<Step> step = MakeStep(campaign.model, plan, point, /*rank=*/0, options);
  double flop = 0;
  for (const Op& op : step->ops) {
    flop += op.work.flop;
  }
  return flop * static_cast<double>(step->micro_batches);
}

}  // namespace

AttemptNeeds NeedsOf(const Campaign& campaign, const TrialSpec& trial, bool on_cpu) {
  const Point& point = campaign.points[static_cast<size_t>(trial.point_index)];
  AttemptNeeds needs{.on_cpu = on_cpu};
  for (const Plan* plan : {&trial.baseline, &trial.variant}) {
    needs.weight_bytes += FitMemory(campaign.model, *plan, point, campaign.layers_kept,
                                    std::numeric_limits<double>::max())
                              .weight_bytes;
    needs.step_flop = std::max(needs.step_flop, FlopOf(campaign, *plan, point));
  }
  return needs;
}

milliseconds SetupAllowance(const AttemptNeeds& needs, milliseconds at_most) {
  const double seconds =
      needs.weight_bytes / (needs.on_cpu ? kCpuBytesPerS : kGpuBytesPerS) +
      kUntimedSteps * needs.step_flop / (needs.on_cpu ? kCpuFlopPerS : kGpuFlopPerS);
  const double limit_s = std::chrono::duration<double>(at_most).count();
  return seconds < limit_s ? milliseconds(static_cast<int64_t>(seconds * 1000)) : at_most;
}

milliseconds AttemptDeadline(const MeasureOptions& measure, const AttemptNeeds& needs,
                             milliseconds at_most) {
  return std::min(at_most, SetupAllowance(needs, at_most) + kUnforeseen) +
         kTimedShare * measure.max_time / measure.launches;
}

milliseconds WallGrace(const MeasureOptions& measure, const AttemptNeeds& needs,
                       milliseconds at_most) {
  return std::max(kLeastGrace, 2 * measure.max_time) + SetupAllowance(needs, at_most);
}

}  // namespace lastflop
