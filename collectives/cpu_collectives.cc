#include "collectives/cpu_collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr absl::string_view kCallWords[] = {"all_reduce", "all_gather", "dispatch", "combine"};

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A number that is equal on two ranks when they name the same group: groups of a gang do not
// overlap, so first rank and size tell them apart; -1 for a list that cannot be a group.
double GroupCode(const std::vector<int>& ranks, int self) {
  const bool ascending = std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>());
  if (ranks.empty() || !ascending || self < 0) {
    return -1;
  }
  uint64_t members = 0;
  for (const int r : ranks) {
    members = members * 67 + static_cast<uint64_t>(r) + 1;
  }
  return static_cast<double>(members % (uint64_t{1} << 50));
}

// The first rank whose group is not what this rank takes it for; -1 for none.
int FindStranger(const std::vector<double>& codes, double own, const std::vector<int>& ranks) {
  for (size_t r = 0; r < codes.size(); ++r) {
    const bool is_member =
        std::find(ranks.begin(), ranks.end(), static_cast<int>(r)) != ranks.end();
    if (codes[r] < 0 || (codes[r] == own) != is_member) {
      return static_cast<int>(r);
    }
  }
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuCommunicator>> CpuCommunicator::Create(Gang& gang,
                                                                         Options options) {
  if (options.ranks.empty()) {
    options.ranks.resize(static_cast<size_t>(gang.num_ranks()));
    std::iota(options.ranks.begin(), options.ranks.end(), 0);
  }
  const auto found = std::find(options.ranks.begin(), options.ranks.end(), gang.rank());
  const int self =
      found == options.ranks.end() ? -1 : static_cast<int>(found - options.ranks.begin());
  const double code = GroupCode(options.ranks, self);
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> codes, gang.AllGather(code));
  // One rank's refusal is every rank's, or the others would wait for it in the next call.
  const int stranger = FindStranger(codes, code, options.ranks);
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> strangers,
                            gang.AllGather(static_cast<double>(stranger)));
  for (size_t r = 0; r < strangers.size(); ++r) {
    if (strangers[r] >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "groups of a communicator: rank ", strangers[r], " does not name the group that rank ", r,
          " names; each rank is in one group, and its members agree on it"));
    }
  }
  const Layout layout = MakeLayout(options);
  LASTFLOP_ASSIGN_OR_RETURN(Gang::SharedMemory memory, gang.MapShared(layout.total));
  std::vector<std::byte*> of_group;
  for (const int r : options.ranks) {
    of_group.push_back(memory.of_rank[static_cast<size_t>(r)]);
  }
  memory.of_rank = std::move(of_group);
  return std::unique_ptr<CpuCommunicator>(
      new CpuCommunicator(gang, std::move(options), self, std::move(memory), layout));
}

CpuCommunicator::CpuCommunicator(Gang& gang, Options options, int self, Gang::SharedMemory memory,
                                 Layout layout)
    : gang_(gang),
      options_(std::move(options)),
      self_(self),
      memory_(std::move(memory)),
      layout_(layout),
      wait_({.share_cores = options_.share_cores, .timeout = options_.timeout}) {}

CpuCommunicator::Layout CpuCommunicator::MakeLayout(const Options& options) {
  const size_t ranks = options.ranks.size();
  const auto tokens = static_cast<size_t>(options.max_tokens);
  const auto hidden = static_cast<size_t>(options.hidden_size);
  const auto top_k = static_cast<size_t>(options.top_k);
  Layout layout;
  size_t at = AlignUp(sizeof(Head));
  const auto place = [&at](size_t bytes) { return std::exchange(at, at + AlignUp(bytes)); };
  layout.staging[0] = place(kSegmentElements * sizeof(uint16_t));
  layout.staging[1] = place(kSegmentElements * sizeof(uint16_t));
  layout.partials = place(kSegmentElements * sizeof(float));
  layout.rows = place(tokens * hidden * sizeof(uint16_t));
  layout.expert_ids = place(tokens * top_k * sizeof(int32_t));
  layout.weights = place(tokens * top_k * sizeof(float));
  layout.num_sent = place(sizeof(int64_t));
  layout.offsets = place((ranks + 1) * sizeof(int64_t));
  layout.returns = place(ranks * tokens * hidden * sizeof(uint16_t));
  layout.total = at;
  return layout;
}

CpuCommunicator::Head& CpuCommunicator::HeadOf(int rank) const {
  // Zeroed shared memory is a valid Head: counters at 0.
  return *reinterpret_cast<Head*>(memory_.of_rank[static_cast<size_t>(rank)]);
}

absl::Status CpuCommunicator::CheckUsable() const {
  if (failure_.ok()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("an earlier collective of this communicator failed: ", failure_.message()));
}

absl::Status CpuCommunicator::WaitFor(absl::string_view what, int rank,
                                      const std::atomic<uint64_t>& counter, uint64_t value) {
  failure_ = WaitForPeer(gang_, wait_, what, options_.ranks[static_cast<size_t>(rank)], counter,
                         value, HeadOf(rank).failed);
  if (!failure_.ok()) {
    HeadOf(self_).failed.store(1, std::memory_order_release);
  }
  return failure_;
}

absl::Status CpuCommunicator::Meet(const Arrival& arrival, double* wait_us) {
  const auto start = Clock::now();
  const size_t parity = NextParity();
  ++num_meetings_;
  Head& mine = HeadOf(self_);
  mine.arrivals[parity] = arrival;
  mine.arrived.store(num_meetings_, std::memory_order_release);
  for (int r = 0; r < num_ranks(); ++r) {
    LASTFLOP_RETURN_IF_ERROR(WaitFor(kCallWords[static_cast<size_t>(arrival.call)], r,
                                     HeadOf(r).arrived, num_meetings_));
  }
  if (wait_us != nullptr) {
    *wait_us = MicrosSince(start);
  }
  return CompareArrivals(arrival);
}

absl::Status CpuCommunicator::CompareArrivals(const Arrival& mine) const {
  const size_t parity = num_meetings_ % 2;
  const auto agree = [&](const Arrival& other) {
    return other.call == mine.call && other.count == mine.count && other.detail == mine.detail;
  };
  bool all_agree = true;
  std::string said;
  for (int r = 0; r < num_ranks(); ++r) {
    all_agree = all_agree && agree(HeadOf(r).arrivals[parity]);
  }
  if (all_agree) {
    return absl::OkStatus();
  }
  for (int r = 0; r < num_ranks(); ++r) {
    const Arrival& other = HeadOf(r).arrivals[parity];
    absl::StrAppend(&said, said.empty() ? "" : ", ", "rank ",
                    options_.ranks[static_cast<size_t>(r)], ": ",
                    kCallWords[static_cast<size_t>(other.call)], " of ", other.count);
    if (other.detail != mine.detail) {
      absl::StrAppend(&said, " (detail ", other.detail, ")");
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ranks disagree on a collective: ", said, "; all must ask for the same"));
}

void CpuCommunicator::ForParts(int64_t count, absl::FunctionRef<void(int64_t, int64_t)> fn) const {
  // Below this a hand-over to other threads costs more than the part: 16 Ki elements are 32 KiB.
  constexpr int64_t kWorthThreads = 16 << 10;
  if (options_.parallel_for && count >= kWorthThreads) {
    options_.parallel_for(count, fn);
  } else if (count > 0) {
    fn(0, count);
  }
}

absl::StatusOr<CollectiveTiming> CpuCommunicator::AllGather(std::span<const std::byte> mine,
                                                            std::span<std::byte> all) {
  LASTFLOP_RETURN_IF_ERROR(CheckUsable());
  if (all.size() != mine.size() * static_cast<size_t>(num_ranks())) {
    return absl::InvalidArgumentError(absl::StrCat("all_gather: ", mine.size(), " bytes of ",
                                                   num_ranks(), " ranks into ", all.size()));
  }
  const auto start = Clock::now();
  CollectiveTiming timing;
  constexpr size_t kPiece = kSegmentElements * sizeof(uint16_t);
  const Arrival arrival = {.count = static_cast<int64_t>(mine.size()), .call = Call::kAllGather};
  size_t begin = 0;
  do {
    const size_t size = std::min(kPiece, mine.size() - begin);
    const size_t offset = layout_.staging[NextParity()];
    if (size > 0) {
      std::memcpy(Part<std::byte>(self_, offset), mine.data() + begin, size);
    }
    LASTFLOP_RETURN_IF_ERROR(Meet(arrival, begin == 0 ? &timing.wait_us : nullptr));
    for (int r = 0; size > 0 && r < num_ranks(); ++r) {
      std::memcpy(all.data() + static_cast<size_t>(r) * mine.size() + begin,
                  Part<std::byte>(r, offset), size);
    }
    begin += size;
  } while (begin < mine.size());
  timing.transfer_us = MicrosSince(start) - timing.wait_us;
  return timing;
}

}  // namespace lastflop
