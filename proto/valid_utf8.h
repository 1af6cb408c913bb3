#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lastflop {

// `text` with every byte that is not part of well-formed UTF-8 (overlong forms, surrogates and
// code points past U+10FFFF included) replaced by '?'.
std::string ValidUtf8(absl::string_view text);

}  // namespace lastflop
