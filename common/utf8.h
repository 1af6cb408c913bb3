#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace lastflop {

// Offset of the first byte that is no part of well-formed UTF-8 (overlong forms, surrogates and
// values past U+10FFFF are not well-formed), or nullopt. Everything that enters lastflop as text
// passes this once, since protobuf, JSON and SQLite all expect it.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

}  // namespace lastflop
