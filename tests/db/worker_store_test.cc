#include "db/worker_store.h"

#include <gtest/gtest.h>

#include "tests/db/some_campaign.h"

namespace lastflop {
namespace {

TEST(WorkerStoreTest, ReplacesTheRowOfAWorker) {
  Database database = DatabaseWithCampaign(":memory:");
  WorkerStore store(database);
  WorkerRow worker{.worker_id = "w0", .device = "cpu:0", .pid = 7, .state = WorkerState::kIdle};
  ASSERT_TRUE(store.Save(worker).ok());
  worker.state = WorkerState::kQuarantined;
  worker.reason = "fails the baseline";
  worker.num_failed = 3;
  ASSERT_TRUE(store.Save(worker).ok());
  const absl::StatusOr<std::vector<WorkerRow>> workers = store.List();
  ASSERT_TRUE(workers.ok()) << workers.status();
  ASSERT_EQ(workers->size(), 1u);
  EXPECT_EQ((*workers)[0].state, WorkerState::kQuarantined);
  EXPECT_EQ((*workers)[0].reason, "fails the baseline");
  EXPECT_EQ((*workers)[0].pid, 7);
}

TEST(WorkerStoreTest, ReadsLogLinesBySourceInPages) {
  Database database = DatabaseWithCampaign(":memory:");
  WorkerStore store(database);
  ASSERT_TRUE(store
                  .AppendLogs({{.at_ms = 1, .source = "w0", .severity = "info", .line = "a"},
                               {.at_ms = 2, .source = "w1", .severity = "odd", .line = "b"},
                               {.at_ms = 3, .source = "w0", .severity = "error", .line = "c"}})
                  .ok());
  const absl::StatusOr<std::vector<LogLine>> first = store.ReadLogs("w0", 0, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 1u);
  EXPECT_EQ((*first)[0].line, "a");
  const absl::StatusOr<std::vector<LogLine>> rest = store.ReadLogs("w0", (*first)[0].log_index, 10);
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ((*rest)[0].severity, "error");
  EXPECT_EQ(store.ReadLogs("", 0, 10)->size(), 3u);
  EXPECT_TRUE(store.CheckLogSource("").ok());
  EXPECT_TRUE(store.CheckLogSource("w1").ok());
  EXPECT_TRUE(store.CheckLogSource("coordinator").ok()) << "though it has said nothing yet";
  const absl::Status unknown = store.CheckLogSource("w7");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.message(), "logs of \"w7\": there are logs of coordinator, w0, w1");
  EXPECT_TRUE(store.TrimLogs().ok());
  EXPECT_EQ(store.ReadLogs("", 0, 10)->size(), 3u);
}

}  // namespace
}  // namespace lastflop
