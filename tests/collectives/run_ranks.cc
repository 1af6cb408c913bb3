#include "tests/collectives/run_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lastflop {

std::string FreshRendezvous() {
  static std::atomic<int> next = 0;
  return absl::StrCat(testing::TempDir(), "lastflop-gang-", getpid(), "-", next++);
}

void RunThreadRanks(int num_ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    threads.emplace_back([&body, r] { body(r); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

namespace {

// A rank that hangs ends after so long. LASTFLOP_TEST_RANK_SECONDS: more, as under a sanitizer.
unsigned RankSeconds() {
  const char* const asked = std::getenv("LASTFLOP_TEST_RANK_SECONDS");
  const int seconds = asked == nullptr ? 0 : std::atoi(asked);
  return seconds > 0 ? static_cast<unsigned>(seconds) : 60;
}

}  // namespace

std::vector<RankOutcome> RunProcessRanks(int num_ranks,
                                         const std::function<std::string(int rank)>& body) {
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int r = 0; r < num_ranks; ++r) {
    int ends[2];
    if (pipe(ends) != 0) {
      ADD_FAILURE() << "no pipe";
      return {};
    }
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      alarm(RankSeconds());
      const std::string text = body(r);
      const ssize_t written = write(ends[1], text.data(), text.size());
      _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  std::vector<RankOutcome> outcomes(children.size());
  for (size_t r = 0; r < children.size(); ++r) {
    char buffer[4096];
    ssize_t got;
    while ((got = read(pipes[r], buffer, sizeof(buffer))) > 0) {
      outcomes[r].text.append(buffer, static_cast<size_t>(got));
    }
    close(pipes[r]);
    int status = 0;
    waitpid(children[r], &status, 0);
    outcomes[r].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  return outcomes;
}

}  // namespace lastflop
