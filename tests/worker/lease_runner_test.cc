// The lease runner with a child that is a real process: the test binary is its own child, as
// lastflop-worker is.
#include "worker/lease_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "common/campaign_json.h"
#include "tests/worker/cpu_gang.h"
#include "worker/child_service.h"
#include "worker/device_lock.h"

namespace lastflop {
namespace {

// What a runner said of its one attempt, and what it then was when asked.
struct Said {
  std::mutex mutex;
  std::condition_variable changed;
  LeaseRunner* runner = nullptr;     // Guarded by mutex.
  std::string held_up;               // Guarded by mutex, as all below.
  bool is_busy = false;              // Nothing ran, as others measured.
  std::vector<std::string> at_work;  // When that was said.
};

TEST(LeaseRunnerTest, AnAttemptThatOthersHoldUpIsCalledThatAndForgottenBeforeItIsRefused) {
  const absl::StatusOr<DeviceLock> held = DeviceLock::Acquire("cpu:3", std::chrono::minutes(2));
  ASSERT_TRUE(held.ok()) << held.status();
  Campaign campaign;
  campaign.name = "child";
  campaign.model = TinyModel(AttentionKind::kGqa);
  campaign.machine.backend = "cpu";
  campaign.points = {TinyPoint()};
  Said said;
  LeaseRunner runner(
      "cpu:3", PluginOptions{},
      {.started = [](const std::string&) {},
       .progress =
           [&said](const std::string&, const std::string&, int64_t, double) {
             const std::lock_guard<std::mutex> lock(said.mutex);
             const std::string id = said.runner->held_up_attempt_id();
             said.held_up = id.empty() ? said.held_up : id;
           },
       .said = [](const std::string&, const std::string&, const std::string&) {},
       .busy =
           [&said](const std::string&, const std::string&) {
             const std::lock_guard<std::mutex> lock(said.mutex);
             said.at_work = said.runner->attempt_ids();
             said.is_busy = true;
             said.changed.notify_all();
           },
       .finished =
           [](const LeasedWork&, const AttemptResult& result) {
             ADD_FAILURE() << (result.failure.has_value() ? result.failure->message : "it ran");
           }});
  {
    const std::lock_guard<std::mutex> lock(said.mutex);
    said.runner = &runner;
  }
  runner.Add(
      {.launch = {.launch_key = "k", .campaign_id = "c", .campaign_json = ToJson(campaign)},
       .attempt = {.attempt_id = "a1", .trial_id = "t1", .deadline = std::chrono::seconds(2)},
       .place = {}});
  std::unique_lock<std::mutex> lock(said.mutex);
  ASSERT_TRUE(said.changed.wait_for(lock, std::chrono::minutes(1), [&] { return said.is_busy; }));
  EXPECT_EQ(said.held_up, "a1");
  // A refusal may be lost with its stream: the hello of the next one must not claim the attempt.
  EXPECT_TRUE(said.at_work.empty());
  lock.unlock();
  EXPECT_EQ(runner.held_up_attempt_id(), "");
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == lastflop::kChildFlag) {
    return lastflop::RunChild(std::atoi(argv[2]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
