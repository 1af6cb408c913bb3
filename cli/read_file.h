#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// The bytes of an input file of the command line, 256 MiB at most. Errors: as ReadTextFile().
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace lastflop
