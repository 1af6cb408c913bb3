#pragma once

#include <functional>
#include <string>
#include <vector>

// Runs ranks as threads of the test or as real processes.
namespace lastflop {

// A rendezvous path of its own for this call, under the test's temporary folder.
std::string FreshRendezvous();

// Calls body(rank) on a thread a rank and waits for all.
void RunThreadRanks(int num_ranks, const std::function<void(int rank)>& body);

// What became of a rank that ran as a process.
struct RankOutcome {
  std::string text;  // What the body returned; empty when it was killed.
  int signal = 0;
};

// Forks a process a rank, each returning body(rank) through a pipe. A process that has not ended
// after a minute ends by SIGALRM. `body` may kill its own process.
std::vector<RankOutcome> RunProcessRanks(int num_ranks,
                                         const std::function<std::string(int rank)>& body);

}  // namespace lastflop
