#include "collectives/peer_wait.h"

#include "absl/strings/str_cat.h"

namespace lastflop {

absl::Status WaitForPeer(const Gang& gang, const WaitOptions& options, absl::string_view what,
                         int rank, const std::atomic<uint64_t>& counter, uint64_t value,
                         const FailedFlag& failed) {
  const WaitOutcome outcome = SpinUntil(
      options, [&] { return counter.load(std::memory_order_acquire) >= value; },
      [&] { return gang.IsBroken() || failed.load(std::memory_order_acquire) != 0; });
  switch (outcome) {
    case WaitOutcome::kDone:
      return absl::OkStatus();
    case WaitOutcome::kBroken:
      if (gang.IsBroken()) {
        return gang.BrokenStatus();
      }
      return absl::AbortedError(absl::StrCat(what, ": rank ", rank, " of ", gang.num_ranks(),
                                             " gave up at an earlier collective"));
    case WaitOutcome::kTimeout:
      break;
  }
  return absl::DeadlineExceededError(absl::StrCat(what, ": rank ", rank, " of ", gang.num_ranks(),
                                                  " did not come within ", options.timeout.count(),
                                                  " ms"));
}

}  // namespace lastflop
