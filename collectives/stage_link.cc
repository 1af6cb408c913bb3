#include "collectives/stage_link.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

// Bytes of one message's slot.
size_t SlotBytes(int64_t max_elements) {
  return (static_cast<size_t>(max_elements) * sizeof(uint16_t) + 63) / 64 * 64;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageLink>> StageLink::Create(Gang& gang, const Options& options) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> to, gang.AllGather(options.to));
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> from, gang.AllGather(options.from));
  for (int r = 0; r < gang.num_ranks(); ++r) {
    for (int other = 0; other < gang.num_ranks(); ++other) {
      const bool sends = to[static_cast<size_t>(r)] == other;
      const bool hears = from[static_cast<size_t>(other)] == r;
      if (sends != hears || (r == other && sends)) {
        return absl::InvalidArgumentError(
            absl::StrCat("stage link: rank ", r, " sends to ", to[static_cast<size_t>(r)],
                         " and rank ", other, " receives from ", from[static_cast<size_t>(other)],
                         ": both ends must name each other"));
      }
    }
  }
  const size_t bytes = sizeof(Head) + kSlots * SlotBytes(options.max_elements);
  LASTFLOP_ASSIGN_OR_RETURN(Gang::SharedMemory memory, gang.MapShared(bytes));
  return std::unique_ptr<StageLink>(new StageLink(gang, options, std::move(memory)));
}

StageLink::StageLink(Gang& gang, const Options& options, Gang::SharedMemory memory)
    : gang_(gang),
      options_(options),
      memory_(std::move(memory)),
      wait_({.share_cores = options.share_cores, .timeout = options.timeout}) {}

StageLink::Head& StageLink::HeadOf(int rank) const {
  // Zeroed shared memory is a valid Head: counters at 0.
  return *reinterpret_cast<Head*>(memory_.of_rank[static_cast<size_t>(rank)]);
}

uint16_t* StageLink::Slot(int rank, uint64_t message) const {
  return reinterpret_cast<uint16_t*>(memory_.of_rank[static_cast<size_t>(rank)] + sizeof(Head) +
                                     message % kSlots * SlotBytes(options_.max_elements));
}

absl::Status StageLink::Fail(absl::Status status) {
  HeadOf(gang_.rank()).failed.store(1, std::memory_order_release);
  return status;
}

absl::StatusOr<CollectiveTiming> StageLink::Send(std::span<const uint16_t> data) {
  if (options_.to < 0 || static_cast<int64_t>(data.size()) > options_.max_elements) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline.send of ", data.size(),
                                                   " elements to rank ", options_.to, ": at most ",
                                                   options_.max_elements));
  }
  const auto start = Clock::now();
  const Head& next = HeadOf(options_.to);
  if (num_sent_ >= kSlots) {
    if (absl::Status status = WaitForPeer(gang_, wait_, "pipeline.send", options_.to, next.taken,
                                          num_sent_ - kSlots + 1, next.failed);
        !status.ok()) {
      return Fail(std::move(status));
    }
  }
  const auto free = Clock::now();
  std::copy(data.begin(), data.end(), Slot(gang_.rank(), num_sent_));
  Head& mine = HeadOf(gang_.rank());
  mine.counts[num_sent_ % kSlots] = static_cast<int64_t>(data.size());
  mine.sent.store(++num_sent_, std::memory_order_release);
  return CollectiveTiming{.wait_us = MicrosBetween(start, free),
                          .transfer_us = MicrosBetween(free, Clock::now())};
}

absl::StatusOr<CollectiveTiming> StageLink::Receive(std::span<uint16_t> data) {
  if (options_.from < 0) {
    return absl::InvalidArgumentError("pipeline.receive on the first stage");
  }
  const auto start = Clock::now();
  const Head& last = HeadOf(options_.from);
  if (absl::Status status = WaitForPeer(gang_, wait_, "pipeline.receive", options_.from, last.sent,
                                        num_taken_ + 1, last.failed);
      !status.ok()) {
    return Fail(std::move(status));
  }
  const auto there = Clock::now();
  const int64_t count = last.counts[num_taken_ % kSlots];
  if (count != static_cast<int64_t>(data.size())) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("pipeline.receive: rank ", gang_.rank(), " expects ", data.size(),
                     " elements, rank ", options_.from, " sent ", count)));
  }
  std::copy_n(Slot(options_.from, num_taken_), count, data.begin());
  HeadOf(gang_.rank()).taken.store(++num_taken_, std::memory_order_release);
  return CollectiveTiming{.wait_us = MicrosBetween(start, there),
                          .transfer_us = MicrosBetween(there, Clock::now())};
}

}  // namespace lastflop
