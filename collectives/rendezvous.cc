#include "collectives/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr uint64_t kMagic = 0x6c666c6f70676731;  // "lflopgg1"

struct Hello {
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t num_ranks = 0;
};

enum class Answer : int32_t { kWelcome = 0, kWrongCount = 1, kTaken = 2 };

struct Welcome {
  Answer answer = Answer::kWelcome;
  int32_t num_ranks = 0;
};

absl::Status LostWhileMeeting(int rank, int num_ranks) {
  return absl::AbortedError(
      absl::StrCat("rank ", rank, " of ", num_ranks, " ended while the gang met"));
}

// Rank 0's side of a meeting.
class Host {
 public:
  Host(int num_ranks, UniqueFd listener)
      : num_ranks_(num_ranks),
        listener_(std::move(listener)),
        sockets_(static_cast<size_t>(num_ranks)) {}

  // Accepts until every rank is here.
  absl::Status AcceptAll(const std::string& path, Deadline deadline) {
    while (!Missing().empty()) {
      std::vector<pollfd> polled = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const UniqueFd& socket : sockets_) {
        polled.push_back({.fd = socket.get(), .events = POLLRDHUP, .revents = 0});
      }
      const int ready = poll(polled.data(), polled.size(), PollMs(deadline));
      if (ready < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "waiting for ranks");
      }
      if (ready == 0) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", absl::StrJoin(Missing(), ", "),
                                                        " of ", num_ranks_, " did not come to ",
                                                        path, " in time"));
      }
      for (size_t r = 0; ready > 0 && r < sockets_.size(); ++r) {
        if (polled[r + 1].revents != 0) {
          return LostWhileMeeting(static_cast<int>(r), num_ranks_);
        }
      }
      if (ready > 0 && polled[0].revents != 0) {
        AcceptOne(deadline);
      }
    }
    return absl::OkStatus();
  }

  std::vector<UniqueFd> TakeSockets() { return std::move(sockets_); }

 private:
  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int r = 1; r < num_ranks_; ++r) {
      if (!sockets_[static_cast<size_t>(r)].is_open()) {
        missing.push_back(r);
      }
    }
    return missing;
  }

  // A caller that says nothing sensible, or is turned away, is dropped: the gang waits on.
  void AcceptOne(Deadline deadline) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    if (!socket.is_open() || !ReceiveMessage(socket.get(), &hello, sizeof(hello), deadline).ok() ||
        hello.magic != kMagic) {
      return;
    }
    Welcome welcome = {.answer = Answer::kWelcome, .num_ranks = num_ranks_};
    if (hello.num_ranks != num_ranks_ || hello.rank < 1 || hello.rank >= num_ranks_) {
      welcome.answer = Answer::kWrongCount;
    } else if (sockets_[static_cast<size_t>(hello.rank)].is_open()) {
      welcome.answer = Answer::kTaken;
    }
    if (SendMessage(socket.get(), &welcome, sizeof(welcome)).ok() &&
        welcome.answer == Answer::kWelcome) {
      sockets_[static_cast<size_t>(hello.rank)] = std::move(socket);
    }
  }

  const int num_ranks_;
  UniqueFd listener_;
  std::vector<UniqueFd> sockets_;
};

absl::StatusOr<Meeting> MeetAsLeader(const std::string& path, int num_ranks, size_t page_bytes,
                                     Deadline deadline) {
  Meeting meeting;
  meeting.sockets.resize(static_cast<size_t>(num_ranks));
  if (num_ranks > 1) {
    LASTFLOP_ASSIGN_OR_RETURN(UniqueFd listener, ListenAt(path));
    Host host(num_ranks, std::move(listener));
    const absl::Status accepted = host.AcceptAll(path, deadline);
    unlink(path.c_str());
    LASTFLOP_RETURN_IF_ERROR(accepted);
    meeting.sockets = host.TakeSockets();
  }
  LASTFLOP_ASSIGN_OR_RETURN(meeting.page, CreateSharedMemory(page_bytes));
  return meeting;
}

// Connects and is welcomed. Unavailable: nobody there yet, try again.
absl::StatusOr<UniqueFd> CallOnLeader(const std::string& path, int rank, int num_ranks,
                                      Deadline deadline) {
  LASTFLOP_ASSIGN_OR_RETURN(UniqueFd socket, ConnectTo(path));
  const Hello hello = {.magic = kMagic, .rank = rank, .num_ranks = num_ranks};
  LASTFLOP_RETURN_IF_ERROR(SendMessage(socket.get(), &hello, sizeof(hello)));
  Welcome welcome;
  LASTFLOP_RETURN_IF_ERROR(ReceiveMessage(socket.get(), &welcome, sizeof(welcome), deadline));
  switch (welcome.answer) {
    case Answer::kWelcome:
      return socket;
    case Answer::kWrongCount:
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " of ", num_ranks, " came to a gang of ", welcome.num_ranks));
    case Answer::kTaken:
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " of ", num_ranks, " is already in the gang at ", path));
  }
  return absl::InternalError("rank 0 answered with an unknown word");
}

absl::StatusOr<Meeting> MeetAsFollower(const std::string& path, int rank, int num_ranks,
                                       Deadline deadline) {
  Meeting meeting;
  meeting.sockets.resize(static_cast<size_t>(num_ranks));
  while (true) {
    absl::StatusOr<UniqueFd> socket = CallOnLeader(path, rank, num_ranks, deadline);
    if (socket.ok()) {
      meeting.sockets[0] = *std::move(socket);
      return meeting;
    }
    if (!absl::IsUnavailable(socket.status())) {
      return socket.status();
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank 0 of ", num_ranks, " did not come to ",
                                                      path,
                                                      " in time: ", socket.status().message()));
    }
    // Nothing wakes a caller when a listener appears; 2 ms is short beside the start of a process.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

absl::StatusOr<Meeting> MeetAt(const std::string& path, int rank, int num_ranks, size_t page_bytes,
                               Deadline deadline) {
  if (rank == 0) {
    return MeetAsLeader(path, num_ranks, page_bytes, deadline);
  }
  LASTFLOP_ASSIGN_OR_RETURN(Meeting meeting, MeetAsFollower(path, rank, num_ranks, deadline));
  int32_t ready = 0;
  const absl::Status received =
      ReceiveMessage(meeting.sockets[0].get(), &ready, sizeof(ready), deadline, &meeting.page);
  if (absl::IsUnavailable(received)) {
    return LostWhileMeeting(0, num_ranks);
  }
  if (absl::IsDeadlineExceeded(received)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", rank, " of ", num_ranks, " met rank 0, but another rank did not come in time"));
  }
  LASTFLOP_RETURN_IF_ERROR(received);
  return meeting;
}

absl::Status StartTogether(const Meeting& meeting, int rank, int num_ranks, Deadline deadline) {
  int32_t ready = 1;
  if (rank != 0) {
    // The page that came with MeetAt is initialized: rank 0 sends it only then.
    if (!SendMessage(meeting.sockets[0].get(), &ready, sizeof(ready)).ok()) {
      return LostWhileMeeting(0, num_ranks);
    }
    return absl::OkStatus();
  }
  for (int r = 1; r < num_ranks; ++r) {
    if (!SendMessage(meeting.sockets[static_cast<size_t>(r)].get(), &ready, sizeof(ready),
                     meeting.page.get())
             .ok()) {
      return LostWhileMeeting(r, num_ranks);
    }
  }
  for (int r = 1; r < num_ranks; ++r) {
    const absl::Status received = ReceiveMessage(meeting.sockets[static_cast<size_t>(r)].get(),
                                                 &ready, sizeof(ready), deadline);
    if (absl::IsUnavailable(received)) {
      return LostWhileMeeting(r, num_ranks);
    }
    LASTFLOP_RETURN_IF_ERROR(received);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
