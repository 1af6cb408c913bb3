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
  const FailedWork baseline = {.trial_key = "c/t0",
                               .intervention = "c/baseline/",
                               .is_baseline = true,
                               .is_known_good = true};
  WorkerEntry worker;
  EXPECT_FALSE(BookFailure(baseline, false, 3, worker).is_quarantined);
  BookSuccess(worker);
  EXPECT_FALSE(BookFailure(baseline, false, 3, worker).is_quarantined);
  EXPECT_TRUE(BookFailure(baseline, false, 3, worker).is_quarantined);
}

TEST_F(WorkerTableTest, WhatNeverWorkedAnywhereSaysNothingOfTheWorker) {
  WorkerEntry worker;
  for (int i = 0; i < 9; ++i) {
    const FailedWork work = {.trial_key = "c/t" + std::to_string(i),
                             .intervention = "c/i" + std::to_string(i)};
    EXPECT_FALSE(BookFailure(work, true, 3, worker).is_quarantined) << i;
  }
}

TEST_F(WorkerTableTest, DifferentInterventionsThatWorkQuarantineWhereOthersCanTakeOver) {
  const auto work = [](const std::string& intervention, const std::string& point) {
    return FailedWork{
        .trial_key = intervention + point, .intervention = intervention, .is_known_good = true};
  };
  WorkerEntry worker;
  for (const char* point : {"0", "1", "2", "3"}) {
    EXPECT_FALSE(BookFailure(work("a", point), true, 3, worker).is_quarantined)
        << "one intervention at many points is one";
  }
  EXPECT_FALSE(BookFailure(work("b", "0"), true, 3, worker).is_quarantined);
  WorkerEntry only = worker;
  EXPECT_TRUE(BookFailure(work("c", "0"), true, 3, worker).is_quarantined);
  EXPECT_FALSE(BookFailure(work("c", "0"), false, 3, only).is_quarantined)
      << "the only worker may just have bad trials";
}

TEST_F(WorkerTableTest, ASuccessElsewhereMakesAnEarlierFailureCount) {
  WorkerEntry worker;
  for (const char* name : {"a", "b", "c"}) {
    BookFailure({.trial_key = name, .intervention = name}, true, 3, worker);
    BookSuccessElsewhere(name, worker);
  }
  EXPECT_TRUE(BookFailure({.trial_key = "d", .intervention = "d"}, true, 3, worker).is_quarantined);
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
