#include "common/utf8.h"

#include <cstdint>
#include <optional>

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

bool IsSequence(absl::string_view text, size_t start, size_t length) {
  if (length == 0 || start + length > text.size()) {
    return false;
  }
  constexpr uint32_t kLeadMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code_point = Byte(text, start) & kLeadMask[length];
  for (size_t i = start + 1; i < start + length; ++i) {
    if ((Byte(text, i) & 0xc0) != 0x80) {
      return false;
    }
    code_point = code_point << 6 | (Byte(text, i) & 0x3f);
  }
  const bool is_overlong =
      (length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000);
  const bool is_surrogate = code_point >= 0xd800 && code_point < 0xe000;
  return !is_overlong && !is_surrogate && code_point <= 0x10ffff;
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(Byte(text, i));
    if (!IsSequence(text, i, length)) {
      return i;
    }
    i += length;
  }
  return std::nullopt;
}

}  // namespace lastflop
