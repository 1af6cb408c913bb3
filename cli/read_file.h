#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// The bytes of a file. NotFound or PermissionDenied with the path and the system's reason.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace lastflop
