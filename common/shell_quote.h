#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lastflop {

// `text` as one word of a POSIX shell, for commands that a message tells the user to type: as it is
// where nothing in it is special, else in single quotes.
std::string ShellQuoted(absl::string_view text);

}  // namespace lastflop
