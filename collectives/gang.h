#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// The processes of one gang, met on their host over a Unix socket, with shared memory between
// them. Rank 0 listens on the rendezvous path; the others connect, with retries until `timeout`.
// The control calls below are for the sampling loop, outside timed code; the collectives of a step
// are in collectives/cpu_collectives.h.
//
// When a member ends or is killed, every blocked call of the others returns Aborted within the
// timeout, with the rank that was lost in the message ("rank 1 of 2 ended").
// Not thread-safe: one thread a rank.
class Gang {
 public:
  virtual ~Gang() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  virtual absl::Status Barrier() = 0;

  // Every rank gets all ranks' values, in rank order.
  virtual absl::StatusOr<std::vector<double>> AllGather(double value) = 0;

  // Every rank gets rank 0's bytes; at most 1 MiB.
  virtual absl::StatusOr<std::string> BroadcastFromLeader(const std::string& bytes) = 0;

  // Memory that all ranks map at creation: `bytes` a rank, zeroed, page-aligned. Collective call:
  // every rank calls it with the same size, in the same order. It is unmapped here with the last
  // copy of the result, which may outlive the gang: a gang serves many arms, one after another.
  struct SharedMemory {
    std::vector<std::byte*> of_rank;  // of_rank[r] is rank r's part, mapped here.
    size_t bytes = 0;
    std::shared_ptr<const void> mapping;  // Shared: the parts have several holders.
  };
  virtual absl::StatusOr<SharedMemory> MapShared(size_t bytes) = 0;

  // True when another rank is known to have ended: spinning code polls it (cheap: one atomic load).
  virtual bool IsBroken() const = 0;
  virtual absl::Status BrokenStatus() const = 0;
};

// Meets the others. `rendezvous` is a path under 100 bytes; for num_ranks 1 it is not used.
absl::StatusOr<std::unique_ptr<Gang>> JoinGang(const std::string& rendezvous, int rank,
                                               int num_ranks, std::chrono::milliseconds timeout);

}  // namespace lastflop
