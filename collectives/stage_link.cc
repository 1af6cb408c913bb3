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

// Bytes of the elements of one slot.
size_t ElementBytes(int64_t max_elements) {
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
  const size_t slot_bytes = sizeof(SlotHead) + ElementBytes(options.max_elements);
  const size_t bytes = sizeof(Head) + static_cast<size_t>(options.slots) * slot_bytes;
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

StageLink::SlotHead& StageLink::Slot(int rank, uint64_t message) const {
  const size_t slot = message % static_cast<uint64_t>(options_.slots);
  const size_t slot_bytes = sizeof(SlotHead) + ElementBytes(options_.max_elements);
  return *reinterpret_cast<SlotHead*>(memory_.of_rank[static_cast<size_t>(rank)] + sizeof(Head) +
                                      slot * slot_bytes);
}

absl::Status StageLink::Fail(absl::Status status) {
  HeadOf(gang_.rank()).failed.store(1, std::memory_order_release);
  return status;
}

absl::StatusOr<CollectiveTiming> StageLink::Send(std::span<const uint16_t> data,
                                                 std::span<const uint16_t> more) {
  const auto count = static_cast<int64_t>(data.size() + more.size());
  if (options_.to < 0 || count > options_.max_elements) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline.send of ", count, " elements to rank ",
                                                   options_.to, ": at most ",
                                                   options_.max_elements));
  }
  const auto start = Clock::now();
  const Head& next = HeadOf(options_.to);
  const auto slots = static_cast<uint64_t>(options_.slots);
  if (num_sent_ >= slots) {
    if (absl::Status status = WaitForPeer(gang_, wait_, "pipeline.send", options_.to, next.taken,
                                          num_sent_ - slots + 1, next.failed);
        !status.ok()) {
      return Fail(std::move(status));
    }
  }
  const auto free = Clock::now();
  SlotHead& slot = Slot(gang_.rank(), num_sent_);
  slot.count = count;
  auto* const elements = reinterpret_cast<uint16_t*>(&slot + 1);
  std::copy(more.begin(), more.end(), std::copy(data.begin(), data.end(), elements));
  HeadOf(gang_.rank()).sent.store(++num_sent_, std::memory_order_release);
  return CollectiveTiming{.wait_us = MicrosBetween(start, free),
                          .transfer_us = MicrosBetween(free, Clock::now())};
}

absl::StatusOr<CollectiveTiming> StageLink::Receive(std::span<uint16_t> data,
                                                    std::span<uint16_t> more) {
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
  const SlotHead& slot = Slot(options_.from, num_taken_);
  if (slot.count != static_cast<int64_t>(data.size() + more.size())) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "pipeline.receive: rank ", gang_.rank(), " expects ", data.size() + more.size(),
        " elements, rank ", options_.from, " sent ", slot.count)));
  }
  const auto* const elements = reinterpret_cast<const uint16_t*>(&slot + 1);
  std::copy_n(elements, data.size(), data.begin());
  std::copy_n(elements + data.size(), more.size(), more.begin());
  HeadOf(gang_.rank()).taken.store(++num_taken_, std::memory_order_release);
  return CollectiveTiming{.wait_us = MicrosBetween(start, there),
                          .transfer_us = MicrosBetween(there, Clock::now())};
}

}  // namespace lastflop
