#pragma once

#include <string>

#include "absl/strings/string_view.h"

// How results tell of a quarantine: as the outcome of the lost attempt that brought it about.
namespace lastflop {

// "worker w0 is quarantined: it failed a baseline that is known to work, twice in a row: signal 11"
std::string QuarantineNote(absl::string_view worker_id, absl::string_view reason,
                           absl::string_view failure);

// Whether an attempt's outcome is such a note.
bool IsQuarantineNote(absl::string_view outcome);

}  // namespace lastflop
