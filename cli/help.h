#pragma once

#include "absl/strings/string_view.h"

namespace lastflop {

// The text of cli/help/`verb`.txt ("lastflop" for the program itself), built in; "" for no verb.
absl::string_view HelpText(absl::string_view verb);

}  // namespace lastflop
