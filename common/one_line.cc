#include "common/one_line.h"

#include <cstdint>

#include "common/utf8.h"

namespace lastflop {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD

bool IsInside(uint32_t value, uint32_t first, uint32_t last) {
  return value >= first && value <= last;
}

bool MayNotBeShown(uint32_t code_point) {
  return code_point < 0x20 || IsInside(code_point, 0x7f, 0x9f) ||
         IsInside(code_point, 0x2028, 0x202e) ||  // Separators; embeddings and overrides.
         IsInside(code_point, 0x2066, 0x2069);    // Isolates.
}

std::string Plain(absl::string_view text, bool keeps_line_feeds) {
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = FirstUtf8Character(text);
    if (character.num_bytes == 0) {
      plain.append(kReplacement);
      text.remove_prefix(1);
      continue;
    }
    if (keeps_line_feeds && character.code_point == '\n') {
      plain.push_back('\n');
    } else if (MayNotBeShown(character.code_point)) {
      plain.push_back(' ');
    } else {
      plain.append(text.data(), character.num_bytes);
    }
    text.remove_prefix(character.num_bytes);
  }
  return plain;
}

}  // namespace

std::string OneLine(absl::string_view text) { return Plain(text, /*keeps_line_feeds=*/false); }

std::string PlainLines(absl::string_view text) { return Plain(text, /*keeps_line_feeds=*/true); }

}  // namespace lastflop
