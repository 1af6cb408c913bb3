#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lastflop {

// FNV-1a, 64 bits: the same in every process and build, unlike std::hash and absl::Hash.
constexpr uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace lastflop
