#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/cost/rows_csv.h"

namespace lastflop {

// How far predictions of rows were off that nothing was fitted on.
struct AccuracyLine {
  std::string system;  // "all" in the last line. Held out by system: the one that was predicted.
  std::string kernel;
  int64_t num_rows = 0;
  double median_error = 0;  // |predicted / measured - 1|
  double p90_error = 0;
  double max_error = 0;
  double inside = 0;  // Share of measurements within the stated interval.
};

struct AccuracyReport {
  std::vector<AccuracyLine> lines;
  // Tensor against expert parallelism over equally many ranks, all else equal, where the measured
  // times differ by more than 10%: how many, and how many were predicted in the right order.
  int64_t num_pairs = 0;
  int64_t num_right = 0;
};

// Predicts every row from the rows with another value of `column` (held out value by value), or the
// rows with `value` alone when it is not empty. tp, ep, tokens, distribution, system, kernel_source
// for MoE layers; gpus, bytes, system, kernel for all-reduces. Other systems' and kernels' rows are
// left in. Values without which nothing would be left to fit on the same kernel are skipped, but
// for `system`, where kernels that one system alone has are. InvalidArgument: an unknown column, or
// no row that can be held out.
absl::StatusOr<AccuracyReport> HoldOut(const MeasuredRows& rows, absl::string_view column,
                                       absl::string_view value);

}  // namespace lastflop
