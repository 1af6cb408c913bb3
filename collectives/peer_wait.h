#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "collectives/gang.h"
#include "collectives/wait.h"

namespace lastflop {

// What a rank shows that it gave up: set once, never cleared.
using FailedFlag = std::atomic<uint32_t>;

// Waits until `counter`, which rank `rank` of the gang moves on, is at least `value`. Aborted when
// a rank of the gang ended, or when `rank` gave up; DeadlineExceeded when it did not come in time.
// `what` is the call, for the message.
absl::Status WaitForPeer(const Gang& gang, const WaitOptions& options, absl::string_view what,
                         int rank, const std::atomic<uint64_t>& counter, uint64_t value,
                         const FailedFlag& failed);

}  // namespace lastflop
