#include "common/utf8.h"

namespace lastflop {
namespace {

uint32_t Byte(absl::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// Bytes of the sequence that starts with `lead`, 0 when none starts so.
size_t SequenceLength(uint32_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

}  // namespace

Utf8Character FirstUtf8Character(absl::string_view text) {
  const size_t length = text.empty() ? 0 : SequenceLength(Byte(text, 0));
  if (length == 0 || length > text.size()) {
    return {};
  }
  constexpr uint32_t kLeadMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code_point = Byte(text, 0) & kLeadMask[length];
  for (size_t i = 1; i < length; ++i) {
    if ((Byte(text, i) & 0xc0) != 0x80) {
      return {};
    }
    code_point = code_point << 6 | (Byte(text, i) & 0x3f);
  }
  const bool is_overlong =
      (length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000);
  const bool is_surrogate = code_point >= 0xd800 && code_point < 0xe000;
  if (is_overlong || is_surrogate || code_point > 0x10ffff) {
    return {};
  }
  return {.code_point = code_point, .num_bytes = length};
}

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = FirstUtf8Character(text.substr(i)).num_bytes;
    if (length == 0) {
      return i;
    }
    i += length;
  }
  return std::nullopt;
}

}  // namespace lastflop
