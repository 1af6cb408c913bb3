#include "worker/measuring_hold.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};

// A process that holds the lock of `device`, as another campaign's child or, without a `note` of
// its pid, any other program does.
class Holder {
 public:
  Holder(const std::string& folder, const std::string& device, bool has_note) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      absl::StatusOr<DeviceLock> lock = DeviceLock::Open(device, folder);
      const bool ok = lock.ok() && lock->Try(LockMode::kExclusive).ok();
      if (!has_note) {
        const int fd = open(absl::StrCat(folder, "/cpu-1.lock").c_str(), O_RDWR | O_TRUNC);
        close(fd);
      }
      [[maybe_unused]] const ssize_t told = write(ends[1], ok ? "y" : "n", 1);
      pause();
      _exit(0);
    }
    close(ends[1]);
    char answer = 'n';
    EXPECT_EQ(read(ends[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(ends[0]);
  }
  ~Holder() { Kill(); }

  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class MeasuringHoldTest : public testing::Test {
 protected:
  MeasuringHoldTest() : folder_(absl::StrCat(testing::TempDir(), "hold-", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~MeasuringHoldTest() override { std::filesystem::remove_all(folder_); }

  MeasuringHoldOptions Options(const std::string& device, milliseconds timeout = kLong) const {
    return {.device = device, .timeout = timeout, .folder = folder_};
  }

  // A gang with a thread a device: each holds, calls `inside` and ends. The statuses by rank.
  std::vector<absl::Status> RunGang(const std::string& name,
                                    const std::vector<std::string>& devices, milliseconds timeout,
                                    const std::function<void()>& inside) const {
    std::vector<absl::Status> statuses(devices.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      threads.emplace_back([&, rank] {
        auto gang = JoinGang(absl::StrCat(folder_, "/", name), static_cast<int>(rank),
                             static_cast<int>(devices.size()), kLong);
        if (!gang.ok()) {
          statuses[rank] = gang.status();
          return;
        }
        const auto hold = HoldToMeasure(**gang, Options(devices[rank], timeout));
        statuses[rank] = hold.status();
        if (hold.ok()) {
          inside();
          statuses[rank] = (*gang)->Barrier();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return statuses;
  }

  const std::string folder_;
};

TEST_F(MeasuringHoldTest, SaysWhoHoldsTheDeviceWhileWaitingAndWhenTheTimeIsUp) {
  const Holder holder(folder_, "cpu:1", /*has_note=*/true);
  MeasuringHoldOptions options = Options("cpu:1", milliseconds(30));
  options.say_after = milliseconds(5);
  int num_waits = 0;
  options.on_wait = [&num_waits] { ++num_waits; };
  std::vector<std::string> said;
  options.say = [&said](const std::string& text) { said.push_back(text); };
  const absl::Status status = HoldToMeasure(options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  const std::string who = absl::StrCat("held by pid ", holder.pid(), " (");
  EXPECT_THAT(std::string(status.message()), HasSubstr(who));
  EXPECT_EQ(num_waits, 1);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("waiting for device cpu:1, "));
  EXPECT_THAT(said[0], HasSubstr(who));
}

TEST_F(MeasuringHoldTest, AHolderWithoutANoteIsAtLeastAnotherProcess) {
  const Holder holder(folder_, "cpu:1", /*has_note=*/false);
  const absl::Status status = HoldToMeasure(Options("cpu:1", milliseconds(0))).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("held by "));
}

TEST_F(MeasuringHoldTest, AHoldersNameIsTextWhateverItsBytes) {
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  absl::StatusOr<DeviceLock> held = DeviceLock::Open("cpu:1", folder_);
  ASSERT_TRUE(held.ok() && *held->Try(LockMode::kExclusive));
  prctl(PR_SET_NAME, "odd\xff\x1b");
  const std::string holder = held->Holder();
  prctl(PR_SET_NAME, name);
  EXPECT_EQ(holder, absl::StrCat("pid ", getpid(), " (odd\xEF\xBF\xBD )"));
}

TEST_F(MeasuringHoldTest, AGangOfWhichOneDeviceIsHeldGivesUpOnEveryRankAndHoldsNothing) {
  const Holder holder(folder_, "cpu:1", /*has_note=*/true);
  for (const absl::Status& status :
       RunGang("gang", {"cpu:0", "cpu:1"}, milliseconds(30), [] { FAIL(); })) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: device cpu:1 is still held"));
  }
  EXPECT_TRUE(HoldToMeasure(Options("cpu:0", milliseconds(0))).ok());
}

TEST_F(MeasuringHoldTest, AHolderThatDiesLetsTheGangGoOn) {
  Holder holder(folder_, "cpu:1", /*has_note=*/true);
  std::atomic<int> num_inside = 0;
  std::vector<absl::Status> statuses;
  std::thread gang([&] {
    statuses = RunGang("gang", {"cpu:0", "cpu:1"}, kLong, [&num_inside] { ++num_inside; });
  });
  EXPECT_EQ(num_inside, 0);
  holder.Kill();
  gang.join();
  EXPECT_EQ(num_inside, 2);
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok()) << statuses[0] << statuses[1];
}

TEST_F(MeasuringHoldTest, WhoWaitsIsBeforeWhoHasJustLetGo) {
  absl::StatusOr<MeasuringHold> first = HoldToMeasure(Options("cpu:1", milliseconds(0)));
  ASSERT_TRUE(first.ok()) << first.status();
  std::promise<void> waits;
  std::promise<void> is_over;
  absl::Status waited;
  std::thread other([&] {
    MeasuringHoldOptions options = Options("cpu:1");
    options.on_wait = [&waits, said = false]() mutable {
      if (!std::exchange(said, true)) {
        waits.set_value();
      }
    };
    const absl::StatusOr<MeasuringHold> hold = HoldToMeasure(options);
    waited = hold.status();
    is_over.get_future().wait();
  });
  waits.get_future().wait();
  { const MeasuringHold let_go = *std::move(first); }
  // The next attempt of the campaign that has measured; the other looks every few milliseconds.
  EXPECT_FALSE(HoldToMeasure(Options("cpu:1", milliseconds(0))).ok());
  is_over.set_value();
  other.join();
  EXPECT_TRUE(waited.ok()) << waited;
}

TEST_F(MeasuringHoldTest, AStoppedProcessThatIsNextKeepsNobodyFromAFreeDevice) {
  const Holder stopped(folder_, "cpu:1-next", /*has_note=*/true);
  EXPECT_TRUE(HoldToMeasure(Options("cpu:1")).ok());
}

TEST_F(MeasuringHoldTest, TwoGangsOnTheSameDevicesTakeTurnsInWhateverOrderTheirRanksAre) {
  std::atomic<int> of_first = 0;
  std::atomic<int> of_second = 0;
  std::atomic<int> num_beside = 0;
  const auto enter = [&num_beside](std::atomic<int>& own, const std::atomic<int>& other) {
    ++own;
    num_beside += other > 0 ? 1 : 0;
    std::this_thread::yield();
    num_beside += other > 0 ? 1 : 0;
    --own;
  };
  const auto repeat = [&](const std::string& name, const std::vector<std::string>& devices,
                          std::atomic<int>& own, const std::atomic<int>& other) {
    for (int time = 0; time < 5; ++time) {
      for (const absl::Status& status :
           RunGang(absl::StrCat(name, time), devices, kLong, [&] { enter(own, other); })) {
        EXPECT_TRUE(status.ok()) << status;
      }
    }
  };
  std::thread first([&] { repeat("a", {"cpu:4", "cpu:5"}, of_first, of_second); });
  repeat("b", {"cpu:5", "cpu:4"}, of_second, of_first);
  first.join();
  EXPECT_EQ(num_beside, 0);
}

TEST_F(MeasuringHoldTest, OneMeasuresOnTheCpuButSingleGpusDoSideBySide) {
  {
    const auto gpu = HoldToMeasure(Options("cuda:0", milliseconds(0)));
    ASSERT_TRUE(gpu.ok());
    EXPECT_TRUE(HoldToMeasure(Options("cuda:1", milliseconds(0))).ok());
    EXPECT_FALSE(HoldToMeasure(Options("cuda:0", milliseconds(0))).ok());
    EXPECT_FALSE(HoldToMeasure(Options("cpu:0", milliseconds(0))).ok());
  }
  const auto cpu = HoldToMeasure(Options("cpu:0", milliseconds(0)));
  ASSERT_TRUE(cpu.ok());
  EXPECT_FALSE(HoldToMeasure(Options("cpu:1", milliseconds(0))).ok());
  EXPECT_FALSE(HoldToMeasure(Options("cuda:1", milliseconds(0))).ok());
}

TEST_F(MeasuringHoldTest, HoldsTheGpuItselfWhateverNumberItHas) {
  MeasuringHoldOptions options = Options("cuda:0", milliseconds(0));
  options.lock_name = "GPU-a";
  const auto first = HoldToMeasure(options);
  ASSERT_TRUE(first.ok());
  options.device = "cuda:1";  // Of a process that CUDA_VISIBLE_DEVICES shows it as the second.
  const absl::Status same = HoldToMeasure(options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(same)) << same;
  options.device = "cuda:0";
  options.lock_name = "GPU-b";
  EXPECT_TRUE(HoldToMeasure(options).ok());
}

}  // namespace
}  // namespace lastflop
