#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// The folder of the running binary, without a slash at its end. Its siblings are the other two
// binaries of lastflop.
absl::StatusOr<std::string> BinaryDirectory();

// Where a file or folder that comes with lastflop is: `experiments/quickstart.yaml`, `db/schema`.
// Found relative to the running binary, so an installed tree can be moved. NotFound when it is not
// there.
absl::StatusOr<std::string> SharePath(absl::string_view name);

}  // namespace lastflop
