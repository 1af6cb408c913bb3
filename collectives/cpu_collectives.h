#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/gang.h"
#include "collectives/peer_wait.h"
#include "collectives/wait.h"
#include "common/words.h"
#include "step/shapes.h"

namespace lastflop {

// What a collective tells of itself.
struct CollectiveTiming {
  double wait_us = 0;      // From this rank's arrival until the last rank's: not transfer.
  double transfer_us = 0;  // The rest of the call.
  AllReduceAlgorithm ran = AllReduceAlgorithm::kAuto;  // all_reduce: what `auto` resolved to.
};

// The collectives of a step on the CPU backend, over shared memory of the ranks of a gang or of a
// group of them. Calls are collective over the group, in the same order on every rank; every call
// begins with a meeting at which the ranks compare what they are about to do, so that unequal
// counts or different calls end in InvalidArgument on every rank, naming ranks and values.
// A rank that ended gives Aborted, one that does not come in time DeadlineExceeded with its
// number; after either, every later call fails with FailedPrecondition, on every rank.
//
// bf16 values are passed as their 16 bits. Not thread-safe: one thread a rank.
class CpuCommunicator {
 public:
  static constexpr int kMaxGroupRanks = 64;

  struct Options {
    // Ranks of the gang in this group, ascending; empty is all. Every rank of the gang creates at
    // the same time and names the group that it is in.
    std::vector<int> ranks;
    // Room for AllToAll, per rank of the group; 0 tokens when it is not used.
    int64_t max_tokens = 0;
    int64_t hidden_size = 0;
    int64_t top_k = 0;
    bool share_cores = true;  // Ranks share cores: yield while waiting.
    std::chrono::milliseconds timeout{60'000};
    // Runs fn(begin, end) over parts of [0, count), on the threads of this rank. Unset: inline.
    std::function<void(int64_t count, absl::FunctionRef<void(int64_t, int64_t)> fn)> parallel_for;
  };

  // `gang` outlives the communicator. InvalidArgument when the ranks do not agree on the groups.
  static absl::StatusOr<std::unique_ptr<CpuCommunicator>> Create(Gang& gang, Options options);

  int num_ranks() const { return static_cast<int>(options_.ranks.size()); }
  int rank() const { return self_; }  // In the group.

  // Sum over the group, in place, any number of elements. Every rank gets the same bits: sums are
  // made in fp32 and rounded once, one_shot and two_shot in rank order, ring in ring order from
  // the chunk's owner on. Unimplemented: a payload other than bf16, or nccl, with the reason.
  absl::StatusOr<CollectiveTiming> AllReduce(std::span<uint16_t> data, AllReduceAlgorithm algorithm,
                                             ActivationFormat payload = ActivationFormat::kBf16);

  // all[r] = rank r's `mine`; `all` holds num_ranks() times its size.
  absl::StatusOr<CollectiveTiming> AllGather(std::span<const std::byte> mine,
                                             std::span<std::byte> all);

  // Tokens of this rank, for Dispatch.
  struct TokensToSend {
    std::span<const uint16_t> rows;       // [num_tokens, hidden_size]
    std::span<const int32_t> expert_ids;  // [num_tokens, top_k], -1 for a slot that is not used
    std::span<const float> weights;       // [num_tokens, top_k]
  };
  // Tokens that have an expert on this rank, by sending rank, then in that rank's order. Room for
  // num_ranks() * max_tokens of each.
  struct TokensReceived {
    std::span<uint16_t> rows;
    std::span<int32_t> expert_ids;  // All top_k of the token, other ranks' too.
    std::span<float> weights;
  };

  // Every token row goes to the ranks that own one of its experts; rank r owns the
  // num_experts / num_ranks() experts from r times that on. Returns how many came, in
  // `num_received`. Sizes are found in the data: nothing about the routing is known beforehand.
  absl::StatusOr<CollectiveTiming> Dispatch(const AllToAllShape& shape, const TokensToSend& tokens,
                                            const TokensReceived& received, int64_t* num_received);

  // The way back of the latest Dispatch: `partial` [num_received, hidden_size] is this rank's
  // weighted sum of each token it received; out[t] = sum over ranks of t's partials, in rank order
  // in fp32, (+ shared[t]), rounded once. `shared` may be empty.
  absl::StatusOr<CollectiveTiming> Combine(std::span<const uint16_t> partial,
                                           std::span<const uint16_t> shared,
                                           std::span<uint16_t> out);

 private:
  // Long messages travel in segments, so that what a rank writes is read by the others while it is
  // still in cache. 512 KiB of bf16: the double buffers of two ranks take 2 MiB of it.
  static constexpr int64_t kSegmentElements = int64_t{256} << 10;

  enum class Call : int32_t { kAllReduce, kAllGather, kDispatch, kCombine };
  // What a rank says when it arrives. `detail` and `count` must agree over the group.
  struct Arrival {
    int64_t count = 0;
    int64_t detail = 0;
    Call call = Call::kAllReduce;
  };
  // The head of a rank's shared memory; written by that rank only. Counters grow by every meeting,
  // never fall, so that nothing is reset between calls.
  struct Head {
    alignas(64) std::atomic<uint64_t> arrived;  // Meetings entered.
    Arrival arrivals[2];                        // By parity of the meeting.
    alignas(64) std::atomic<uint64_t> reduced;  // Meetings whose own slice is summed (two_shot).
    alignas(64) std::atomic<uint64_t> ring;     // Steps of the ring that are written.
    alignas(64) FailedFlag failed;              // This rank gave up.
  };
  // Where things lie in a rank's shared memory, in bytes.
  struct Layout {
    size_t staging[2] = {0, 0};
    size_t partials = 0;
    size_t rows = 0;
    size_t expert_ids = 0;
    size_t weights = 0;
    size_t num_sent = 0;
    size_t offsets = 0;  // Where each rank's tokens begin among those received.
    size_t returns = 0;
    size_t total = 0;
  };

  CpuCommunicator(Gang& gang, Options options, int self, Gang::SharedMemory memory, Layout layout);
  static Layout MakeLayout(const Options& options);

  Head& HeadOf(int rank) const;
  template <typename T>
  T* Part(int rank, size_t offset) const {
    return reinterpret_cast<T*>(memory_.of_rank[static_cast<size_t>(rank)] + offset);
  }

  using Clock = std::chrono::steady_clock;
  static double MicrosSince(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  absl::Status CheckUsable() const;
  // Enters the next meeting, waits for all and compares what they said. `wait_us` may be null.
  absl::Status Meet(const Arrival& arrival, double* wait_us);
  absl::Status CompareArrivals(const Arrival& mine) const;
  // Waits until `counter` of `rank` is at least `value`.
  absl::Status WaitFor(absl::string_view what, int rank, const std::atomic<uint64_t>& counter,
                       uint64_t value);
  size_t NextParity() const { return (num_meetings_ + 1) % 2; }
  void ForParts(int64_t count, absl::FunctionRef<void(int64_t, int64_t)> fn) const;

  absl::Status OneShot(std::span<uint16_t> data, const Arrival& arrival, double* wait_us);
  absl::Status TwoShot(std::span<uint16_t> data, const Arrival& arrival, double* wait_us);
  absl::Status Ring(std::span<uint16_t> data, const Arrival& arrival, double* wait_us);
  absl::Status CheckDispatch(const AllToAllShape& shape, const TokensToSend& tokens,
                             const TokensReceived& received) const;
  int64_t ReceiveFrom(int rank, const TokensReceived& received, int64_t at) const;
  bool HasExpertOn(const int32_t* expert_ids, int rank) const;
  // Index in rank r's partials of each own token, -1 where it did not go; [rank][token].
  std::vector<std::vector<int64_t>> ReturnRows() const;

  Gang& gang_;  // Outlives this.
  const Options options_;
  const int self_;
  const Gang::SharedMemory memory_;
  const Layout layout_;
  const WaitOptions wait_;
  uint64_t num_meetings_ = 0;
  absl::Status failure_;
  // Of the latest Dispatch, for Combine.
  bool is_dispatched_ = false;
  AllToAllShape dispatched_;
  std::vector<int32_t> dispatched_ids_;
  int64_t num_received_ = 0;
};

}  // namespace lastflop
