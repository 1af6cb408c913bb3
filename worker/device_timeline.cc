#include "worker/device_timeline.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lastflop {

absl::StatusOr<OpTimes> DivideAmongOps(const std::vector<TimeSpan>& spans,
                                       const std::vector<int>& spans_per_op) {
  const int expected = std::accumulate(spans_per_op.begin(), spans_per_op.end(), 0);
  if (static_cast<size_t>(expected) != spans.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a trace has ", spans.size(), " kernels and copies, the step begins ", expected));
  }
  OpTimes times;
  times.op_us.assign(spans_per_op.size(), 0.0);
  times.idle_us.assign(spans_per_op.size(), 0.0);
  size_t next = 0;
  double covered_until = spans.empty() ? 0 : spans.front().begin_us;
  for (size_t op = 0; op < spans_per_op.size(); ++op) {
    for (int i = 0; i < spans_per_op[op]; ++i) {
      const TimeSpan& span = spans[next++];
      times.idle_us[op] += std::max(0.0, span.begin_us - covered_until);
      times.op_us[op] += std::max(0.0, span.end_us - std::max(span.begin_us, covered_until));
      covered_until = std::max(covered_until, span.end_us);
    }
  }
  return times;
}

}  // namespace lastflop
