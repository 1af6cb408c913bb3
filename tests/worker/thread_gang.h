#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/gang.h"

namespace lastflop {

// A gang whose ranks are threads of the test. Make one ThreadGangHub and a ThreadGang a rank.
class ThreadGangHub {
 public:
  explicit ThreadGangHub(int num_ranks)
      : num_ranks_(num_ranks), barrier_(num_ranks), values_(static_cast<size_t>(num_ranks)) {}

 private:
  friend class ThreadGang;
  const int num_ranks_;
  std::barrier<> barrier_;
  std::vector<double> values_;
  std::string bytes_;
  std::vector<std::vector<std::vector<std::byte>>> shared_;  // [call][rank]
};

class ThreadGang : public Gang {
 public:
  ThreadGang(ThreadGangHub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return hub_.num_ranks_; }

  absl::Status Barrier() override {
    hub_.barrier_.arrive_and_wait();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> AllGather(double value) override {
    hub_.values_[static_cast<size_t>(rank_)] = value;
    hub_.barrier_.arrive_and_wait();
    std::vector<double> all = hub_.values_;
    hub_.barrier_.arrive_and_wait();
    return all;
  }

  absl::StatusOr<std::string> BroadcastFromLeader(const std::string& bytes) override {
    if (rank_ == 0) {
      hub_.bytes_ = bytes;
    }
    hub_.barrier_.arrive_and_wait();
    std::string heard = hub_.bytes_;
    hub_.barrier_.arrive_and_wait();
    return heard;
  }

  absl::StatusOr<SharedMemory> MapShared(size_t bytes) override {
    if (rank_ == 0) {
      hub_.shared_.emplace_back(static_cast<size_t>(hub_.num_ranks_),
                                std::vector<std::byte>(bytes));
    }
    hub_.barrier_.arrive_and_wait();
    SharedMemory memory;
    memory.bytes = bytes;
    for (std::vector<std::byte>& part : hub_.shared_.back()) {
      memory.of_rank.push_back(part.data());
    }
    hub_.barrier_.arrive_and_wait();
    return memory;
  }

  bool IsBroken() const override { return false; }
  absl::Status BrokenStatus() const override { return absl::OkStatus(); }

 private:
  ThreadGangHub& hub_;  // Outlives this.
  const int rank_;
};

}  // namespace lastflop
