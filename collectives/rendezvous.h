#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/unix_socket.h"

namespace lastflop {

inline constexpr int kMaxGangRanks = 64;

// What a rank holds after the ranks have met: a socket to rank 0 (rank 0: to every other rank),
// and the descriptor of the control page.
struct Meeting {
  std::vector<UniqueFd> sockets;  // sockets[r] leads to rank r; closed where there is none.
  UniqueFd page;
};

// Rank 0 listens at `path` and waits for ranks 1 to num_ranks - 1; they connect, with retries. A
// rank that asks twice or for another number of ranks is turned away with InvalidArgument.
// DeadlineExceeded names the ranks that did not come; Aborted the one that came and ended. The
// path is removed before rank 0 returns.
absl::StatusOr<Meeting> MeetAt(const std::string& path, int rank, int num_ranks, size_t page_bytes,
                               Deadline deadline);

// Returns on every rank after rank 0 has initialized the page and all have mapped it.
absl::Status StartTogether(const Meeting& meeting, int rank, int num_ranks, Deadline deadline);

}  // namespace lastflop
