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
// to at most one rank and receives from at most one. Two messages may be under way, so that a stage
// works on the next micro-batch while its successor takes the last.
//
// bf16 values are passed as their 16 bits. Not thread-safe: one thread a rank.
class StageLink {
 public:
  struct Options {
    int to = -1;               // Rank of the gang that Send() reaches; -1 for the last stage.
    int from = -1;             // Rank that Receive() hears; -1 for the first stage.
    int64_t max_elements = 0;  // Of a message; the same on every rank.
    bool share_cores = true;
    std::chrono::milliseconds timeout{60'000};
  };

  // Every rank of the gang creates at the same time. `gang` outlives the link. InvalidArgument when
  // the ranks' ends do not meet.
  static absl::StatusOr<std::unique_ptr<StageLink>> Create(Gang& gang, const Options& options);

  // Returns when the message is on its way; waits while two are not yet taken (wait_us).
  absl::StatusOr<CollectiveTiming> Send(std::span<const uint16_t> data);

  // The next message. wait_us is until it was there. InvalidArgument when it has another size.
  absl::StatusOr<CollectiveTiming> Receive(std::span<uint16_t> data);

 private:
  // The head of a rank's shared memory; written by that rank only.
  struct Head {
    alignas(64) std::atomic<uint64_t> sent;
    int64_t counts[2];  // Elements of a message, by parity.
    alignas(64) std::atomic<uint64_t> taken;
    alignas(64) FailedFlag failed;
  };
  static constexpr size_t kSlots = 2;

  StageLink(Gang& gang, const Options& options, Gang::SharedMemory memory);
  Head& HeadOf(int rank) const;
  uint16_t* Slot(int rank, uint64_t message) const;
  absl::Status Fail(absl::Status status);

  Gang& gang_;  // Outlives this.
  const Options options_;
  const Gang::SharedMemory memory_;
  const WaitOptions wait_;
  uint64_t num_sent_ = 0;
  uint64_t num_taken_ = 0;
};

}  // namespace lastflop
