#include "coordinator/event_bus.h"

#include <gtest/gtest.h>

#include <thread>

namespace lastflop {
namespace {

TEST(EventBusTest, NewsBeforeTheWaitIsNotMissed) {
  EventBus bus;
  const int64_t version = bus.version();
  bus.Notify();
  bus.WaitForNews(version, std::chrono::hours(1));
  EXPECT_GT(bus.version(), version);
}

TEST(EventBusTest, WakesAWatcher) {
  EventBus bus;
  const int64_t version = bus.version();
  std::thread watcher([&] { bus.WaitForNews(version, std::chrono::hours(1)); });
  bus.Notify();
  watcher.join();
}

TEST(EventBusTest, KeepsTheLastProgressOfEachCampaign) {
  EventBus bus;
  bus.PublishProgress("c1", {.message = "one"});
  bus.PublishProgress("c1", {.message = "two"});
  EXPECT_EQ(bus.ProgressAfter("c1", 0)->message, "two");
  EXPECT_FALSE(bus.ProgressAfter("c2", 0).has_value());
  EXPECT_FALSE(bus.ProgressAfter("c1", bus.version()).has_value());
}

TEST(EventBusTest, StopEndsEveryWaitAndSaysWhy) {
  EventBus bus;
  EXPECT_FALSE(bus.stopped().has_value());
  bus.Stop(absl::ResourceExhaustedError("disk full"));
  bus.WaitForNews(bus.version(), std::chrono::hours(1));
  EXPECT_EQ(bus.stopped()->code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lastflop
