#include "worker/l2_window.h"

#include <algorithm>

namespace lastflop {

L2Window ClampL2Window(size_t asked_bytes, size_t max_window_bytes, size_t set_aside_bytes) {
  L2Window window;
  window.bytes = std::min(asked_bytes, max_window_bytes);
  if (window.bytes > 0) {
    window.hit_ratio =
        std::min(1.0, static_cast<double>(set_aside_bytes) / static_cast<double>(window.bytes));
  }
  return window;
}

}  // namespace lastflop
