#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/cpu_collectives.h"
#include "collectives/gang.h"
#include "collectives/peer_wait.h"

namespace lastflop {

// The hand-over of activations between the stages of a pipeline on the CPU backend: each rank sends
// to at most one rank and receives from at most one (around a ring too: tokens go from the last
// stage back to the first). As many messages as there are slots may be under way, so that a stage
// works on the next micro-batch while its successor takes the last.
//
// bf16 values are passed as their 16 bits. Not thread-safe: one thread a rank.
class StageLink {
 public:
  struct Options {
    int to = -1;               // Rank of the gang that Send() reaches; -1 for the last stage.
    int from = -1;             // Rank that Receive() hears; -1 for the first stage.
    int64_t max_elements = 0;  // Of a message; the same on every rank.
    int64_t slots = 2;         // Messages under way; the same on every rank, at least 1.
    bool share_cores = true;
    std::chrono::milliseconds timeout{60'000};
  };

  // Every rank of the gang creates at the same time. `gang` outlives the link. InvalidArgument when
  // the ranks' ends do not meet.
  static absl::StatusOr<std::unique_ptr<StageLink>> Create(Gang& gang, const Options& options);

  // Returns when the message, `data` and then `more`, is on its way; waits while every slot holds
  // one that is not yet taken (wait_us).
  absl::StatusOr<CollectiveTiming> Send(std::span<const uint16_t> data,
                                        std::span<const uint16_t> more = {});

  // The next message into `data` and then `more`. wait_us is until it was there. InvalidArgument
  // when it has another size.
  absl::StatusOr<CollectiveTiming> Receive(std::span<uint16_t> data, std::span<uint16_t> more = {});

 private:
  // The head of a rank's shared memory; written by that rank only.
  struct Head {
    alignas(64) std::atomic<uint64_t> sent;
    alignas(64) std::atomic<uint64_t> taken;
    alignas(64) FailedFlag failed;
  };
  // What a slot begins with; the elements follow.
  struct alignas(64) SlotHead {
    int64_t count;  // Elements of the message.
  };

  StageLink(Gang& gang, const Options& options, Gang::SharedMemory memory);
  Head& HeadOf(int rank) const;
  SlotHead& Slot(int rank, uint64_t message) const;
  absl::Status Fail(absl::Status status);

  Gang& gang_;  // Outlives this.
  const Options options_;
  const Gang::SharedMemory memory_;
  const WaitOptions wait_;
  uint64_t num_sent_ = 0;
  uint64_t num_taken_ = 0;
};

}  // namespace lastflop
