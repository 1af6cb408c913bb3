#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lastflop {

// Collectives to be measured, nothing left to a default.
struct CollectivesBench {
  std::vector<std::string> devices;     // One a rank: "cpu:0", "cuda:0" ...
  std::vector<int64_t> bytes;           // Of bf16 values a rank; even.
  std::vector<std::string> algorithms;  // Words of the operations' algorithms.
  std::vector<std::string> operations = {"all_reduce"};
};

// Runs a process of lastflop-worker a rank and gives rank 0's JSON (worker/collective_bench.h),
// which has `rows`. Blocks until all have ended. Errors as their exit codes say; theirs are on
// stderr.
absl::StatusOr<std::string> RunCollectivesBench(const CollectivesBench& bench);

}  // namespace lastflop
