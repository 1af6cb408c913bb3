#include "coordinator/worker_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/campaign_json.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class WorkerTableTest : public testing::Test {
 protected:
  WorkerTableTest() {
    options_.host_id = "here";
    options_.is_process_alive = [this](int64_t pid) { return alive_.count(pid) > 0; };
  }

  static WorkerHello HelloOf(const std::string& worker_id, int64_t pid,
                             const std::string& host_id = "here") {
    return {.worker_id = worker_id,
            .device = "cpu:0",
            .host_id = host_id,
            .host_name = "host",
            .pid = pid,
            .machine_json = ToJson(Machine())};
  }

  absl::StatusOr<std::string> Accept(const WorkerHello& hello, milliseconds now = milliseconds(0)) {
    return table_.Accept(hello, ++session_, now, replaced_);
  }

  CoordinatorOptions options_;
  std::set<int64_t> alive_ = {1, 2};
  WorkerTable table_{options_};
  SessionId session_ = 0;
  SessionId replaced_ = 0;
};

TEST_F(WorkerTableTest, RefusesASecondLiveWorkerWithTheSameId) {
  ASSERT_TRUE(Accept(HelloOf("w0", 1)).ok());
  const absl::Status status = Accept(HelloOf("w0", 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("process 1 on host"));
  EXPECT_EQ(table_.Find("w0")->row.pid, 1);
}

TEST_F(WorkerTableTest, RefusesTheCoordinatorsOwnName) {
  EXPECT_EQ(Accept(HelloOf("coordinator", 1)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerTableTest, TakesInARestartedWorkerAtOnceWhenItsOldProcessIsGone) {
  ASSERT_TRUE(Accept(HelloOf("w0", 1)).ok());
  alive_.erase(1);
  EXPECT_TRUE(Accept(HelloOf("w0", 2)).ok());
  EXPECT_EQ(replaced_, 1u);
  EXPECT_EQ(table_.Find("w0")->row.pid, 2);
}

TEST_F(WorkerTableTest, TakesInAWorkerWhoseOldStreamIsBrokenOrSilent) {
  ASSERT_TRUE(Accept(HelloOf("w0", 1, "far")).ok());
  table_.Find("w0")->session = 0;
  EXPECT_TRUE(Accept(HelloOf("w0", 7, "far")).ok());
  EXPECT_FALSE(Accept(HelloOf("w0", 8, "far")).ok());
  EXPECT_TRUE(Accept(HelloOf("w0", 8, "far"), options_.timeout + milliseconds(1)).ok());
}

TEST_F(WorkerTableTest, TheSameProcessMayConnectAgain) {
  ASSERT_TRUE(Accept(HelloOf("w0", 1)).ok());
  EXPECT_TRUE(Accept(HelloOf("w0", 1)).ok());
  EXPECT_EQ(replaced_, 1u);
}

TEST_F(WorkerTableTest, NamesAWorkerThatHasNoName) {
  EXPECT_EQ(*Accept(HelloOf("", 1)), "host-cpu0");
  EXPECT_EQ(*Accept(HelloOf("", 2)), "host-cpu0-2");
}

TEST_F(WorkerTableTest, RefusesAMachineItCannotRead) {
  WorkerHello hello = HelloOf("w0", 1);
  hello.machine_json = "{\"from_the_future\": 1}";
  EXPECT_EQ(Accept(hello).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.Find("w0"), nullptr);
}

TEST_F(WorkerTableTest, OneBadBaselineIsAnAccidentAndTwoInARowAreNot) {
  WorkerEntry worker;
  EXPECT_FALSE(BookFailure("c/t0", true, false, 3, worker).is_quarantined);
  BookSuccess(worker);
  EXPECT_FALSE(BookFailure("c/t0", true, false, 3, worker).is_quarantined);
  EXPECT_TRUE(BookFailure("c/t0", true, false, 3, worker).is_quarantined);
}

TEST_F(WorkerTableTest, DifferentTrialsInARowQuarantineWhereOthersCanTakeOver) {
  WorkerEntry worker;
  for (const char* trial : {"c/t1", "c/t1", "c/t1", "c/t2"}) {
    EXPECT_FALSE(BookFailure(trial, false, true, 3, worker).is_quarantined);
  }
  WorkerEntry only = worker;
  EXPECT_TRUE(BookFailure("c/t3", false, true, 3, worker).is_quarantined);
  EXPECT_FALSE(BookFailure("c/t3", false, false, 3, only).is_quarantined)
      << "the only worker may just have bad trials";
}

TEST_F(WorkerTableTest, QuarantineEndsWithTheProcess) {
  ASSERT_TRUE(Accept(HelloOf("w0", 1)).ok());
  table_.Find("w0")->is_quarantined = true;
  ASSERT_TRUE(Accept(HelloOf("w0", 1)).ok());
  EXPECT_TRUE(table_.Find("w0")->is_quarantined);
  EXPECT_TRUE(table_.ForScheduler().empty());
  alive_.erase(1);
  ASSERT_TRUE(Accept(HelloOf("w0", 2)).ok());
  EXPECT_FALSE(table_.Find("w0")->is_quarantined);
}

}  // namespace
}  // namespace lastflop
