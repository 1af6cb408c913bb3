#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/words.h"

namespace lastflop {

// What one rank of `lastflop collectives bench` is started with.
struct CollectiveBenchOptions {
  std::string device;      // This rank's: cpu:N or cuda:N.
  std::string rendezvous;  // Where the ranks meet.
  int rank = 0;
  int num_ranks = 1;
  std::vector<int64_t> bytes;  // Of bf16 values a rank; even.
  std::vector<AllReduceAlgorithm> algorithms;
  std::vector<AllToAllAlgorithm> exchanges;
  std::vector<std::string> operations;  // all_reduce, all_reduce_norm, all_to_all.
};

// Measures every size with every algorithm, in chains of dependent and of independent calls, and
// what a norm in the same kernel saves where the device has it; dispatch and combine of tokens
// likewise. Rank 0 writes the rows as JSON to
// stdout: {environment, skipped[], rows[]}. The exit code of the process; errors are on stderr.
int RunCollectiveBench(const CollectiveBenchOptions& options);

}  // namespace lastflop
