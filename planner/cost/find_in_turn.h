#pragma once

#include <cstddef>

namespace lastflop {

// The first place of `size` that `is_it` says yes to, looked for from `next` on and around to what
// is before it; `size` where there is none. `next` returns the place behind what was found: lists
// that are mostly in one order are matched in one step each.
template <typename IsIt>
size_t FindInTurn(size_t size, size_t& next, const IsIt& is_it) {
  for (size_t i = 0; i < size; ++i) {
    const size_t at = (next + i) % size;
    if (is_it(at)) {
      next = at + 1;
      return at;
    }
  }
  return size;
}

}  // namespace lastflop
