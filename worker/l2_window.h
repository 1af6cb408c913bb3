#pragma once

#include <cstddef>

namespace lastflop {

// How much of a window that asks the L2 to keep it can be kept.
struct L2Window {
  size_t bytes = 0;  // Of the window: what was asked for, or the most that a window can be.
  double hit_ratio =
      1;  // The share of its lines that the set-aside holds: min(1, set-aside / bytes).
};

// A window of `asked_bytes` on a device whose windows are up to `max_window_bytes`, where
// `set_aside_bytes` of the L2 are kept for windows. A larger hit ratio would let its own lines push
// each other out.
L2Window ClampL2Window(size_t asked_bytes, size_t max_window_bytes, size_t set_aside_bytes);

}  // namespace lastflop
