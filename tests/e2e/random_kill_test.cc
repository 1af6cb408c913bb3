// kill -9 of coordinator, worker and child, and a worker's pause, at moments that nobody chose.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/recovery_fixture.h"

namespace lastflop {
namespace {

class RandomKillTest : public RecoveryTest {
 protected:
  void Pause(int most_ms) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(random_() % static_cast<unsigned>(most_ms)));
  }

  void KillCoordinator() {
    coordinator_->Signal(SIGKILL);
    coordinator_->Wait();
    StartCoordinator();
  }

  void KillWorker(const std::string& id) {
    workers_[id]->Signal(SIGKILL);
    StartWorker(id);
  }

  void KillChildrenOf(const std::string& id) {
    for (const pid_t child : ChildrenOf(workers_[id]->pid())) {
      kill(child, SIGKILL);
    }
  }

  // For less or for longer than a worker may be silent.
  void StopAndContinue(const std::string& id) {
    workers_[id]->Signal(SIGSTOP);
    Pause(4000);
    workers_[id]->Signal(SIGCONT);
  }

  const char* const given_ = std::getenv("LASTFLOP_TEST_SEED");
  const unsigned seed_ =
      given_ != nullptr ? static_cast<unsigned>(std::atoi(given_)) : std::random_device()();
  std::mt19937 random_{seed_};
  const testing::ScopedTrace trace_{__FILE__, __LINE__,
                                    testing::Message() << "LASTFLOP_TEST_SEED=" << seed_};
};

TEST_F(RandomKillTest, WhateverIsKilledWheneverEveryTrialIsThereOnce) {
  StartCoordinator();
  StartWorker("w0");
  SubmitWith("300ms", {}, /*max_attempts=*/50);
  constexpr int kKills = 12;
  for (int i = 0; i < kKills; ++i) {
    Pause(1200);
    switch (random_() % 3) {
      case 0:
        KillCoordinator();
        break;
      case 1:
        KillWorker("w0");
        break;
      default:
        KillChildrenOf("w0");
    }
  }
  // A worker that was suspected for its dead children is cleared by a new process.
  StartWorker("w0");
  ASSERT_TRUE(WaitForEnd()) << coordinator_->Err();
  ExpectEveryTrialOnce();
}

TEST_F(RandomKillTest, WhateverHappensToAMemberOfAGangEveryTrialIsThereOnce) {
  const std::vector<std::string> ids = {"w0", "w1"};
  StartCoordinator();
  for (const std::string& id : ids) {
    StartWorker(id);
  }
  SubmitWith("300ms", {"--set", "baseline.parallel.tensor=2"}, /*max_attempts=*/50);
  constexpr int kBlows = 10;
  for (int i = 0; i < kBlows; ++i) {
    Pause(1500);
    const std::string& id = ids[random_() % ids.size()];
    switch (random_() % 4) {
      case 0:
        KillCoordinator();
        break;
      case 1:
        KillWorker(id);
        break;
      case 2:
        StopAndContinue(id);
        break;
      default:
        KillChildrenOf(id);
    }
  }
  for (const std::string& id : ids) {
    StartWorker(id);
  }
  ASSERT_TRUE(WaitForEnd()) << coordinator_->Err();
  if (Summarize(Results()).num_lost_out > 0) {
    // Blows that all fell on one trial: it goes on when somebody says so.
    Program resume(folder_.path(), "lastflop", {"resume", "tiny", "--server", server()});
    ASSERT_EQ(resume.Wait(), 0) << resume.Err();
    ASSERT_TRUE(WaitForEnd()) << coordinator_->Err();
  }
  ExpectEveryTrialOnce();
}

}  // namespace
}  // namespace lastflop
