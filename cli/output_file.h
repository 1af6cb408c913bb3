#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// Writes `text` to `out`, or into it as `name`.`extension` where it is a folder or ends in "/"
// (then it is made). `name` may be any text: of it stays what is safe in a file name, and where
// that is not all of it, `id` tells it from others of which the same stays. The file is there as a
// whole or as it was before. Gives its path; InvalidArgument: it cannot be written.
absl::StatusOr<std::string> WriteOutputFile(const std::string& out, absl::string_view name,
                                            absl::string_view extension, absl::string_view text,
                                            absl::string_view id = "");

// What WriteOutputFile refuses beside: a file that is there already, whose content took time to
// make. InvalidArgument, which names --force.
absl::Status CheckNewOutputFile(const std::string& out, absl::string_view name,
                                absl::string_view extension);

}  // namespace lastflop
