#include "proto/valid_utf8.h"

#include <optional>

#include "common/utf8.h"

namespace lastflop {

std::string ValidUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (const std::optional<size_t> bad = FirstInvalidUtf8(text)) {
    valid.append(text.data(), *bad);
    valid.push_back('?');
    text.remove_prefix(*bad + 1);
  }
  valid.append(text.data(), text.size());
  return valid;
}

}  // namespace lastflop
