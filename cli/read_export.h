#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "planner/compare.h"

namespace lastflop {

// What `lastflop export` wrote to a file, as far as campaigns are compared by it: points, trials
// with their attempts and samples, the environment. InvalidArgument: the file is no export (a
// report without trials is none), with the path of what is missing.
absl::StatusOr<ComparedCampaign> ReadExport(const std::string& path);

// The same of text; `name` stands for the file in messages.
absl::StatusOr<ComparedCampaign> ParseExport(const std::string& text, const std::string& name);

}  // namespace lastflop
