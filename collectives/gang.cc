#include "collectives/gang.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/rendezvous.h"
#include "collectives/unix_socket.h"
#include "collectives/wait.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr size_t kMaxBroadcastBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;

// One cache line a rank, so that arriving ranks do not disturb each other.
struct alignas(64) RankLine {
  std::atomic<uint64_t> arrived = 0;  // Control calls that this rank has entered.
  std::atomic<double> value[2] = {0, 0};
};

// The shared page of a gang. Buffers alternate by the parity of the call: a rank writes a buffer
// again only after a call in between, which it passed because all others had left the first.
struct ControlPage {
  std::atomic<int> lost_rank = -1;
  std::atomic<uint64_t> broadcast_bytes[2] = {0, 0};
  RankLine ranks[kMaxGangRanks];
  std::byte broadcast[2][kMaxBroadcastBytes];
};

// What rank 0 says along with the descriptor of new shared memory.
struct MemoryOffer {
  uint64_t bytes_per_rank = 0;
  int32_t ok = 0;
};

// Watches the sockets to the other ranks from a thread of its own. An end that closes names its
// rank on the control page, once: the first rank lost is the one that is reported.
class EndWatcher {
 public:
  EndWatcher(const std::vector<UniqueFd>& sockets, int self, std::atomic<int>& lost_rank)
      : stop_(eventfd(0, EFD_CLOEXEC)), lost_rank_(lost_rank) {
    std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    std::vector<int> rank_of = {-1};
    for (size_t r = 0; r < sockets.size(); ++r) {
      if (static_cast<int>(r) != self && sockets[r].is_open()) {
        // Only the end of the connection: data on it belongs to MapShared.
        polled.push_back({.fd = sockets[r].get(), .events = POLLRDHUP, .revents = 0});
        rank_of.push_back(static_cast<int>(r));
      }
    }
    thread_ = std::thread([this, polled = std::move(polled), rank_of = std::move(rank_of)]() {
      Watch(polled, rank_of);
    });
  }

  ~EndWatcher() {
    const uint64_t one = 1;
    // An eventfd takes the first write at once, so there is nothing to retry.
    [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

 private:
  void Watch(std::vector<pollfd> polled, const std::vector<int>& rank_of) {
    while (true) {
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
        return;
      }
      if (polled[0].revents != 0) {
        return;
      }
      for (size_t i = 1; i < polled.size(); ++i) {
        if (polled[i].revents != 0) {
          int none = -1;
          lost_rank_.compare_exchange_strong(none, rank_of[i]);
          polled[i].fd = -1;  // poll() skips it from now on.
        }
      }
    }
  }

  UniqueFd stop_;
  std::atomic<int>& lost_rank_;  // Outlives this.
  std::thread thread_;
};

class SharedGang : public Gang {
 public:
  // `sockets[r]` leads to rank r where there is a connection: rank 0 has all, the others rank 0's.
  SharedGang(int rank, int num_ranks, std::chrono::milliseconds timeout,
             std::vector<UniqueFd> sockets, Mapping page)
      : rank_(rank),
        num_ranks_(num_ranks),
        wait_({.share_cores = true, .timeout = timeout}),
        sockets_(std::move(sockets)),
        page_mapping_(std::move(page)),
        page_(reinterpret_cast<ControlPage*>(page_mapping_.data())),
        watcher_(sockets_, rank, page_->lost_rank) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  absl::Status Barrier() override { return Meet("barrier"); }
  absl::StatusOr<std::vector<double>> AllGather(double value) override;
  absl::StatusOr<std::string> BroadcastFromLeader(const std::string& bytes) override;
  absl::StatusOr<SharedMemory> MapShared(size_t bytes) override;
  bool IsBroken() const override { return page_->lost_rank.load(std::memory_order_acquire) >= 0; }
  absl::Status BrokenStatus() const override;

 private:
  // Enters the next control call and waits until every rank has.
  absl::Status Meet(absl::string_view call);
  // Buffer of the call that the next Meet() enters.
  size_t NextParity() const { return (num_calls_ + 1) % 2; }
  // A descriptor of num_ranks * bytes, from rank 0 to all.
  absl::StatusOr<UniqueFd> ShareDescriptor(size_t bytes);
  absl::StatusOr<Mapping> ShareMapping(size_t bytes_per_rank);

  const int rank_;
  const int num_ranks_;
  const WaitOptions wait_;
  std::vector<UniqueFd> sockets_;
  Mapping page_mapping_;
  ControlPage* page_;
  uint64_t num_calls_ = 0;
  EndWatcher watcher_;  // Last: its thread uses what is above.
};

absl::Status SharedGang::BrokenStatus() const {
  const int lost = page_->lost_rank.load(std::memory_order_acquire);
  if (lost < 0) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("rank ", lost, " of ", num_ranks_, " ended"));
}

absl::Status SharedGang::Meet(absl::string_view call) {
  ++num_calls_;
  page_->ranks[rank_].arrived.store(num_calls_, std::memory_order_release);
  for (int r = 0; r < num_ranks_; ++r) {
    const WaitOutcome outcome = SpinUntil(
        wait_,
        [&] { return page_->ranks[r].arrived.load(std::memory_order_acquire) >= num_calls_; },
        [&] { return IsBroken(); });
    if (outcome == WaitOutcome::kBroken) {
      return BrokenStatus();
    }
    if (outcome == WaitOutcome::kTimeout) {
      return absl::DeadlineExceededError(absl::StrCat(call, ": rank ", r, " of ", num_ranks_,
                                                      " did not come within ",
                                                      wait_.timeout.count(), " ms"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> SharedGang::AllGather(double value) {
  const size_t parity = NextParity();
  page_->ranks[rank_].value[parity].store(value, std::memory_order_relaxed);
  LASTFLOP_RETURN_IF_ERROR(Meet("all_gather"));
  std::vector<double> values;
  for (int r = 0; r < num_ranks_; ++r) {
    values.push_back(page_->ranks[r].value[parity].load(std::memory_order_relaxed));
  }
  return values;
}

absl::StatusOr<std::string> SharedGang::BroadcastFromLeader(const std::string& bytes) {
  const size_t parity = NextParity();
  if (rank_ == 0) {
    page_->broadcast_bytes[parity].store(bytes.size(), std::memory_order_relaxed);
    if (bytes.size() <= kMaxBroadcastBytes) {
      std::memcpy(page_->broadcast[parity], bytes.data(), bytes.size());
    }
  }
  LASTFLOP_RETURN_IF_ERROR(Meet("broadcast"));
  const uint64_t size = page_->broadcast_bytes[parity].load(std::memory_order_relaxed);
  if (size > kMaxBroadcastBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast of ", size, " bytes: at most ", kMaxBroadcastBytes));
  }
  return std::string(reinterpret_cast<const char*>(page_->broadcast[parity]), size);
}

absl::StatusOr<UniqueFd> SharedGang::ShareDescriptor(size_t bytes) {
  MemoryOffer offer = {.bytes_per_rank = bytes, .ok = 0};
  if (rank_ == 0) {
    absl::StatusOr<UniqueFd> memory = CreateSharedMemory(bytes * static_cast<size_t>(num_ranks_));
    offer.ok = memory.ok() ? 1 : 0;
    for (int r = 1; r < num_ranks_; ++r) {
      const absl::Status sent = SendMessage(sockets_[static_cast<size_t>(r)].get(), &offer,
                                            sizeof(offer), memory.ok() ? memory->get() : -1);
      if (!sent.ok()) {
        return absl::AbortedError(absl::StrCat("rank ", r, " of ", num_ranks_, " ended"));
      }
    }
    return memory;
  }
  UniqueFd memory;
  const absl::Status received =
      ReceiveMessage(sockets_[0].get(), &offer, sizeof(offer),
                     std::chrono::steady_clock::now() + wait_.timeout, &memory);
  if (absl::IsUnavailable(received)) {
    return absl::AbortedError(absl::StrCat("rank 0 of ", num_ranks_, " ended"));
  }
  LASTFLOP_RETURN_IF_ERROR(received);
  if (offer.ok == 0 || !memory.is_open()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank 0 could not make shared memory of ", bytes, " bytes a rank"));
  }
  return memory;
}

absl::StatusOr<Mapping> SharedGang::ShareMapping(size_t bytes_per_rank) {
  LASTFLOP_ASSIGN_OR_RETURN(const UniqueFd memory, ShareDescriptor(bytes_per_rank));
  return Mapping::Map(memory.get(), bytes_per_rank * static_cast<size_t>(num_ranks_));
}

absl::StatusOr<Gang::SharedMemory> SharedGang::MapShared(size_t bytes) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> asked, AllGather(static_cast<double>(bytes)));
  if (bytes == 0 || std::any_of(asked.begin(), asked.end(),
                                [&](double other) { return other != asked.front(); })) {
    return absl::InvalidArgumentError(
        absl::StrCat("map_shared: ranks ask for ", absl::StrJoin(asked, ", "),
                     " bytes; all must ask for the same, at least 1"));
  }
  const size_t per_rank = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  absl::StatusOr<Mapping> mapping = ShareMapping(per_rank);
  if (absl::IsAborted(mapping.status())) {
    return mapping.status();
  }
  // One rank without the memory is an error of all, or the others would wait for it later.
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> mapped, AllGather(mapping.ok() ? 1 : 0));
  LASTFLOP_RETURN_IF_ERROR(mapping.status());
  for (size_t r = 0; r < mapped.size(); ++r) {
    if (mapped[r] != 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", r, " could not map ", bytes, " bytes a rank"));
    }
  }
  SharedMemory shared = {.of_rank = {}, .bytes = bytes, .mapping = nullptr};
  for (int r = 0; r < num_ranks_; ++r) {
    shared.of_rank.push_back(mapping->data() + per_rank * static_cast<size_t>(r));
  }
  shared.mapping = std::make_shared<const Mapping>(*std::move(mapping));
  return shared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gang>> JoinGang(const std::string& rendezvous, int rank,
                                               int num_ranks, std::chrono::milliseconds timeout) {
  if (num_ranks < 1 || num_ranks > kMaxGangRanks || rank < 0 || rank >= num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("joining a gang as rank ", rank, " of ",
                                                   num_ranks, ": ranks are 0 to n - 1, n 1 to ",
                                                   kMaxGangRanks));
  }
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  LASTFLOP_ASSIGN_OR_RETURN(Meeting meeting,
                            MeetAt(rendezvous, rank, num_ranks, sizeof(ControlPage), deadline));
  LASTFLOP_ASSIGN_OR_RETURN(Mapping page, Mapping::Map(meeting.page.get(), sizeof(ControlPage)));
  if (rank == 0) {
    new (page.data()) ControlPage();
  }
  LASTFLOP_RETURN_IF_ERROR(StartTogether(meeting, rank, num_ranks, deadline));
  return std::make_unique<SharedGang>(rank, num_ranks, timeout, std::move(meeting.sockets),
                                      std::move(page));
}

}  // namespace lastflop
