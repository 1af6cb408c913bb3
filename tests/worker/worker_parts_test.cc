#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "worker/child_client.h"
#include "worker/cpu_host.h"
#include "worker/device_lock.h"
#include "worker/host.h"
#include "worker/host_speeds.h"
#include "worker/message_pipe.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CoresOfRankTest, GivesRanksDisjointCores) {
  EXPECT_THAT(CoresOfRank({0, 1, 2, 3, 4}, 0, 2).cores, ElementsAre(0, 1));
  EXPECT_THAT(CoresOfRank({0, 1, 2, 3, 4}, 1, 2).cores, ElementsAre(2, 3, 4));
  EXPECT_THAT(CoresOfRank({4, 6}, 0, 1).cores, ElementsAre(4, 6));
}

TEST(CoresOfRankTest, SharesCoresWhenThereAreFewerThanRanks) {
  EXPECT_THAT(CoresOfRank({0, 1}, 2, 4).cores, ElementsAre(0));
  EXPECT_THAT(CoresOfRank({0, 1}, 3, 4).cores, ElementsAre(1));
}

TEST(CoresTextTest, NamesTheCoresOfEveryRank) {
  EXPECT_EQ(CoresText({0, 1, 2}, 1), "0,1,2");
  EXPECT_EQ(CoresText({0, 1, 2, 3, 4}, 2), "rank 0: 0,1; rank 1: 2,3,4");
  EXPECT_EQ(CoresText({4}, 2), "rank 0: 4; rank 1: 4");
}

TEST(DetectCpuMachineTest, KnowsThisHost) {
  const Machine machine = DetectCpuMachine();
  EXPECT_GE(machine.num_cores, 1);
  EXPECT_GT(machine.memory_bytes, 0);
  EXPECT_EQ(machine.backend, "cpu");
  EXPECT_EQ(BuildHash().size(), 16u);
}

TEST(SpeedsOfHostTest, AreMeasuredOnceWhileTheirMeasurerLives) {
  const std::string folder = ::testing::TempDir();
  const auto first = SpeedsOfHost(folder);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_GE(first->cold_read.size(), 3u);
  EXPECT_GT(first->cold_read.back().bytes, first->cold_read.front().bytes);
  EXPECT_GT(first->tflop_per_s, 1e-3);
  const auto second = SpeedsOfHost(folder);
  ASSERT_TRUE(second.ok()) << second.status();
  // Two measurements never agree to the last bit.
  EXPECT_EQ(second->tflop_per_s, first->tflop_per_s);
  for (size_t i = 0; i < first->cold_read.size(); ++i) {
    EXPECT_EQ(second->cold_read[i].us, first->cold_read[i].us);
  }
}

TEST(DeviceLockTest, KeepsASecondHolderOutAndNamesTheFirst) {
  const std::string device = absl::StrCat("test:", getpid());
  {
    const absl::StatusOr<DeviceLock> first = DeviceLock::Acquire(device, milliseconds(0));
    ASSERT_TRUE(first.ok());
    const absl::StatusOr<DeviceLock> second = DeviceLock::Acquire(device, milliseconds(10));
    EXPECT_TRUE(absl::IsDeadlineExceeded(second.status()));
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", getpid())));
  }
  EXPECT_TRUE(DeviceLock::Acquire(device, milliseconds(0)).ok());
  unlink(DeviceLock::PathFor(device).c_str());
}

TEST(DeviceLockTest, IsForEveryUserOfTheHostWhateverTheUmask) {
  const std::string device = absl::StrCat("test:shared-", getpid());
  const std::string path = DeviceLock::PathFor(device);
  const mode_t umask_before = umask(077);
  EXPECT_TRUE(DeviceLock::Acquire(device, milliseconds(0)).ok());
  umask(umask_before);
  struct stat file = {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0666U);
  ASSERT_EQ(stat(LockFolder().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 01777U);
  EXPECT_TRUE(DeviceLock::Acquire(device, milliseconds(0)).ok()) << "a file that is there";
  unlink(path.c_str());
  ASSERT_EQ(symlink("/tmp/lastflop-nowhere", path.c_str()), 0);
  EXPECT_FALSE(DeviceLock::Acquire(device, milliseconds(0)).ok()) << "no link is followed";
  unlink(path.c_str());
}

TEST(MessagePipeTest, CarriesMessagesOfAnySize) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessagePipe left(ends[0]);
  MessagePipe right(ends[1]);
  const std::string large(3'000'000, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(left.Send("").ok());
    EXPECT_TRUE(left.Send(large).ok());
  });
  EXPECT_EQ(*right.Receive(milliseconds(5000)), "");
  EXPECT_EQ(*right.Receive(milliseconds(5000)), large);
  sender.join();
}

TEST(MessagePipeTest, TellsSilenceFromTheEnd) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessagePipe left(ends[0]);
  {
    MessagePipe right(ends[1]);
    EXPECT_TRUE(absl::IsDeadlineExceeded(left.Receive(milliseconds(1)).status()));
  }
  EXPECT_TRUE(absl::IsUnavailable(left.Receive(milliseconds(1000)).status()));
  // Writing to a dead child is an error, not a signal that ends the worker.
  absl::Status status = left.Send("x");
  status = status.ok() ? left.Send("x") : status;
  EXPECT_TRUE(absl::IsUnavailable(status));
}

TEST(ChildClientTest, EndsAChildWhoseDeviceHasFaulted) {
  AttemptResult result;
  EXPECT_FALSE(EndsChild(result));
  result.failure = Failure{.kind = FailureKind::kWrongResult, .message = "", .rank = 0};
  EXPECT_FALSE(EndsChild(result));
  result.failure->kind = FailureKind::kDeviceFault;
  EXPECT_TRUE(EndsChild(result));
}

}  // namespace
}  // namespace lastflop
