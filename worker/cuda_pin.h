#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/cuda_draw.h"
#include "worker/cuda_step.h"

namespace lastflop {

// moe.l2_pin: which weights the step's expert products ask the L2 to keep.
struct CudaPin {
  size_t limit_bytes = 0;   // What the persisting limit is set to for a timed step.
  size_t pinned_bytes = 0;  // Of the windows, all layers together.
  int num_experts = 0;      // One a layer at most: a kernel has one window.
  std::string note;
};

// Chooses experts and sets the windows of the step's ops, within the share of the device's
// persisting maximum. Experts are chosen by how often other draws than the timed ones route to
// them, or at random, as the plan says. Where not one expert fits, part of one is pinned: the note
// has windows, set-aside and hit ratio. Unimplemented: the device has no persisting L2.
absl::StatusOr<CudaPin> ChoosePins(CudaStep& step, CudaDrawer& drawer, uint64_t seed);

// While it lives, the device keeps `limit_bytes` of its L2 for pinned lines; then the lines are
// given back and the limit is what it was before.
class PersistingL2 {
 public:
  absl::Status Set(size_t limit_bytes);
  absl::Status Reset();
  ~PersistingL2();
  // What the device took of the asked limit.
  size_t effective_bytes() const { return effective_bytes_; }

 private:
  bool is_set_ = false;
  size_t before_ = 0;
  size_t effective_bytes_ = 0;
};

}  // namespace lastflop
