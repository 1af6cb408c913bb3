#include "worker/launch_stop_rule.h"

#include <algorithm>
#include <limits>

#include "stats/stopping.h"

namespace lastflop {

StopRule MakeLaunchStopRule(const AttemptSpec& attempt, const MeasureOptions& measure) {
  SliceRule rule = SliceRuleOf(measure);
  rule.half_width = attempt.half_width;
  rule.confidence = attempt.confidence;
  rule.min_pairs =
      static_cast<int>(std::min<int64_t>(attempt.min_pairs, std::numeric_limits<int>::max()));
  rule.max_time = attempt.max_time;
  // The monitor does not count throttled pairs, so the place in `pairs` is kept apart.
  return [monitor = SliceMonitor(rule), num_added = size_t{0}](std::span<const Pair> pairs,
                                                               Micros sampled) mutable {
    for (; num_added < pairs.size(); ++num_added) {
      monitor.Add(pairs[num_added]);
    }
    return monitor.Decide(sampled).stop;
  };
}

}  // namespace lastflop
