#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace lastflop {

struct Utf8Character {
  uint32_t code_point = 0;
  size_t num_bytes = 0;  // 0: no well-formed character stands there.
};

// The character that `text` starts with. Overlong forms, surrogates and values past U+10FFFF are
// not well-formed.
Utf8Character FirstUtf8Character(absl::string_view text);

// Offset of the first byte that is no part of well-formed UTF-8, or nullopt. Everything that enters
// lastflop as text passes this once, since protobuf, JSON and SQLite all expect it.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

}  // namespace lastflop
