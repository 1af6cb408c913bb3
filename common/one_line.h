#pragma once

#include <string>

#include "absl/strings/string_view.h"

// Text of others (names, reasons, error messages, log lines) as it may reach a terminal: nothing in
// it moves the cursor, colours the screen, ends a line or turns the order of characters around.
namespace lastflop {

// `text` on one line. Control characters (C0, DEL, C1), line and paragraph separators and the
// controls of bidirectional text become one space each; a byte that is no UTF-8 becomes U+FFFD.
std::string OneLine(absl::string_view text);

// As OneLine(), but line feeds stay.
std::string PlainLines(absl::string_view text);

}  // namespace lastflop
