#pragma once

#include "absl/strings/string_view.h"

namespace lastflop {

// Expects `text` to be what tests/golden/`name` holds, byte for byte. Under --update_golden the
// file is written instead, and the change is reviewed like code. Tests run in the root of the
// repository.
void ExpectGolden(absl::string_view name, absl::string_view text);

}  // namespace lastflop
