#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// How often each expert was chosen, [layer][expert], from a recorded run. JSON: a list of layers,
// each a list of counts. CSV: the header `layer,expert,count`, then rows in any order; a pair that
// is not there counts 0. Counts are finite and not negative, every layer has as many experts as
// the first and a positive sum. InvalidArgument as `FILE:LINE:COLUMN: path: message`.
absl::StatusOr<std::vector<std::vector<double>>> ReadRoutingTrace(absl::string_view text,
                                                                  const std::string& file_name);

// The same of a file: JSON when its name ends in .json, else CSV. NotFound when there is none.
absl::StatusOr<std::vector<std::vector<double>>> ReadRoutingTraceFile(const std::string& path);

}  // namespace lastflop
