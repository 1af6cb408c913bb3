#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// The file's bytes. NotFound or FailedPrecondition with the file and the system's reason;
// InvalidArgument when it holds more than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace lastflop
