// kill -9 of coordinator, worker and child at moments that nobody chose.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/e2e/recovery_fixture.h"

namespace lastflop {
namespace {

TEST_F(RecoveryTest, WhateverIsKilledWheneverEveryTrialIsThereOnce) {
  const char* given = std::getenv("LASTFLOP_TEST_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  SCOPED_TRACE(testing::Message() << "LASTFLOP_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  StartCoordinator();
  StartWorker("w0");
  SubmitWith("300ms", {}, /*max_attempts=*/50);
  constexpr int kKills = 12;
  for (int i = 0; i < kKills; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1200));
    switch (random() % 3) {
      case 0:
        coordinator_->Signal(SIGKILL);
        coordinator_->Wait();
        StartCoordinator();
        break;
      case 1:
        workers_["w0"]->Signal(SIGKILL);
        StartWorker("w0");
        break;
      default:
        for (const pid_t child : ChildrenOf(workers_["w0"]->pid())) {
          kill(child, SIGKILL);
        }
    }
  }
  // A worker that was suspected for its dead children is cleared by a new process.
  StartWorker("w0");
  ASSERT_TRUE(WaitForEnd()) << coordinator_->Err();
  ExpectEveryTrialOnce();
}

}  // namespace
}  // namespace lastflop
