// Children of a worker that die in the middle of a trial on a GPU: the next trial finds the device
// as it was. The test binary is its own child, as lastflop-worker is; the fault is asked for by a
// file that only its main looks at.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "kernels/cuda/read_probe_cuda.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plugin_files.h"
#include "worker/child_service.h"
#include "worker/lease_runner.h"

namespace lastflop {
namespace {

constexpr char kFaultOnce[] = "LASTFLOP_TEST_FAULT_ONCE";  // Names a file: the next child faults.
constexpr char kLimitFlag[] = "--persisting-limit";

// Once the child's backend has taken memory, a kernel of this process writes where nothing is.
void FaultInTheMiddle() {
  size_t free_at_first = 0;
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free_at_first, &total) != cudaSuccess) {
    return;
  }
  do {
    poll(nullptr, 0, 1);
  } while (cudaMemGetInfo(&free, &total) == cudaSuccess && free + (16 << 20) > free_at_first);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nobody has, on purpose.
  LaunchFillProbe(reinterpret_cast<void*>(uintptr_t{1} << 46), 1 << 20, nullptr).IgnoreError();
}

int RunAsChild(const char* parent) {
  const char* const file = std::getenv(kFaultOnce);
  if (file != nullptr && unlink(file) == 0) {
    std::thread(FaultInTheMiddle).detach();
  }
  return RunChild(std::atoi(parent));
}

// What a process that has never set it finds.
int PrintPersistingLimit() {
  size_t bytes = 0;
  if (cudaDeviceGetLimit(&bytes, cudaLimitPersistingL2CacheSize) != cudaSuccess) {
    return 1;
  }
  std::printf("%zu\n", bytes);
  return 0;
}

std::string PersistingLimitOfANewProcess() {
  FILE* const pipe = popen(absl::StrCat("/proc/", getpid(), "/exe ", kLimitFlag).c_str(), "r");
  char text[64] = {};
  const bool read = pipe != nullptr && fgets(text, sizeof(text), pipe) != nullptr;
  return pipe != nullptr && pclose(pipe) == 0 && read ? text : "no answer";
}

Campaign SomeCampaign() {
  Campaign campaign;
  campaign.name = "child";
  campaign.model = TinyModel(AttentionKind::kGqa);
  campaign.model.hidden_size = 1024;
  campaign.model.moe_intermediate_size = 512;
  campaign.model.num_experts = 16;
  campaign.model.top_k = 4;
  campaign.machine.backend = "cuda";
  campaign.machine.name = "any";
  campaign.points = {TinyPoint()};
  campaign.baseline.launch.graph = GraphMode::kFull;
  return campaign;
}

// A worker's lease runner, waited for.
class Worker {
 public:
  explicit Worker(std::string launch_key, std::map<std::string, std::string> env = {},
                  PluginOptions plugins = {})
      : campaign_(SomeCampaign()),
        launch_{.launch_key = std::move(launch_key),
                .campaign_id = "c1",
                .data_seed = 11,
                .env = std::move(env)},
        runner_("cuda:0", std::move(plugins),
                {.started = [](const std::string&) {},
                 .progress = [this](const std::string& id, const std::string& stage, int64_t,
                                    double) { Progress(id, stage); },
                 .finished = [this](const LeasedWork&,
                                    const AttemptResult& result) { Finish(result); }}) {
    launch_.campaign_json = ToJson(campaign_);
  }

  AttemptResult Run(const std::string& id, const Plan& variant) { return Run(id, variant, 40, ""); }

  // A trial that goes on until its child dies: by itself, or killed in the stage `kill_while`.
  AttemptResult RunUntilDead(const std::string& id, const Plan& variant,
                             const std::string& kill_while) {
    return Run(id, variant, 1'000'000, kill_while);
  }

  const Plan& baseline() const { return campaign_.baseline; }
  Plan WithPlugin(const std::string& name) const {
    Plan plan = campaign_.baseline;
    plan.moe.kernel = MoeKernel::kPlugin;
    plan.moe.plugin = name;
    return plan;
  }
  Plan Pinned() const {
    Plan plan = campaign_.baseline;
    plan.moe.l2_pin = L2Pin{.share = 0.75};
    return plan;
  }

 private:
  AttemptResult Run(const std::string& id, const Plan& variant, int64_t pairs,
                    const std::string& kill_while) {
    const AttemptSpec attempt{.attempt_id = id,
                              .trial_id = id,
                              .baseline = campaign_.baseline,
                              .variant = variant,
                              .seed = 5,
                              .min_pairs = pairs,
                              .max_pairs = pairs,
                              .max_time = std::chrono::seconds(20)};
    std::unique_lock<std::mutex> lock(mutex_);
    kill_while_ = kill_while;
    is_done_ = false;
    runner_.Add({.launch = launch_, .attempt = attempt, .place = {}});
    changed_.wait(lock, [this] { return is_done_ || is_to_kill_; });
    if (is_to_kill_) {
      is_to_kill_ = false;
      lock.unlock();
      runner_.Cancel(id, "killed by the test");
      lock.lock();
      changed_.wait(lock, [this] { return is_done_; });
    }
    return result_;
  }
  void Progress(const std::string& /*id*/, const std::string& stage) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_to_kill_ = is_to_kill_ || (!kill_while_.empty() && stage == kill_while_);
    if (is_to_kill_) {
      kill_while_.clear();
    }
    changed_.notify_all();
  }
  void Finish(const AttemptResult& result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    result_ = result;
    is_done_ = true;
    changed_.notify_all();
  }

  Campaign campaign_;
  LaunchSpec launch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string kill_while_;
  bool is_to_kill_ = false;
  bool is_done_ = false;
  AttemptResult result_;
  LeaseRunner runner_;
};

double MedianBaselineMicros(const AttemptResult& result) {
  std::vector<double> times;
  for (const PairSample& sample : result.samples) {
    times.push_back(sample.pair.baseline_us);
  }
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 2];
}

void ExpectFine(const AttemptResult& result) {
  EXPECT_FALSE(result.failure.has_value()) << result.failure->message;
  EXPECT_TRUE(result.check_before.ok && result.check_after.ok);
  EXPECT_EQ(result.samples.size(), 40u);
}

TEST(CudaChildTest, AFaultingChildFailsItsTrialAloneAndTheNextOneRunsAsBefore) {
  LASTFLOP_NEED_GPU();
  const std::string file = absl::StrCat(testing::TempDir(), "fault-", getpid());
  AttemptResult before;
  {
    Worker worker("before");
    before = worker.Run("before", worker.baseline());
    ExpectFine(before);
  }
  std::ofstream(file) << "1";
  // Both attempts are of one launch: a child that is kept would fail the second for the first.
  Worker worker("faulting", {{kFaultOnce, file}});
  const AttemptResult faulting = worker.RunUntilDead("faulting", worker.baseline(), "");
  ASSERT_TRUE(faulting.failure.has_value());
  EXPECT_EQ(faulting.failure->kind, FailureKind::kDeviceFault) << faulting.failure->message;
  EXPECT_NE(faulting.failure->message.find("cudaErrorIllegalAddress"), std::string::npos)
      << faulting.failure->message;
  const AttemptResult after = worker.Run("after", worker.baseline());
  ExpectFine(after);
  EXPECT_NEAR(MedianBaselineMicros(after) / MedianBaselineMicros(before), 1, 0.1);
}

TEST(CudaChildTest, APluginThatBreaksTheDeviceOrTheProcessFailsItsTrialAlone) {
  LASTFLOP_NEED_GPU();
  Worker worker(
      "plugins", {},
      {.files = FilesOf({"moe_cuda", "faulty_cuda_async", "faulty_cuda_crash", "faulty_cuda_hang"}),
       .call_limit = std::chrono::seconds(4)});
  const AttemptResult before = worker.Run("before", worker.WithPlugin("moe_cuda"));
  ExpectFine(before);
  EXPECT_NE(before.effective_note.find("plugin:moe_cuda is moe_cuda 1.0"), std::string::npos)
      << before.effective_note;
  const AttemptResult fault = worker.Run("fault", worker.WithPlugin("faulty_cuda_async"));
  ASSERT_TRUE(fault.failure.has_value());
  EXPECT_EQ(fault.failure->kind, FailureKind::kDeviceFault) << fault.failure->message;
  EXPECT_NE(fault.failure->message.find("plugin:faulty_cuda_async in what run() enqueued"),
            std::string::npos)
      << fault.failure->message;
  EXPECT_NE(fault.failure->message.find("cudaErrorIllegalAddress"), std::string::npos)
      << fault.failure->message;
  ExpectFine(worker.Run("between", worker.WithPlugin("moe_cuda")));
  const AttemptResult crash = worker.Run("crash", worker.WithPlugin("faulty_cuda_crash"));
  ASSERT_TRUE(crash.failure.has_value());
  EXPECT_NE(crash.failure->message.find("plugin:faulty_cuda_crash in run()"), std::string::npos)
      << crash.failure->message;
  const AttemptResult hang = worker.Run("hang", worker.WithPlugin("faulty_cuda_hang"));
  ASSERT_TRUE(hang.failure.has_value());
  EXPECT_NE(hang.failure->message.find(
                "no return after 4.0 s, plugin:faulty_cuda_hang in what run() enqueued"),
            std::string::npos)
      << hang.failure->message;
  const AttemptResult after = worker.Run("after", worker.WithPlugin("moe_cuda"));
  ExpectFine(after);
  EXPECT_NEAR(MedianBaselineMicros(after) / MedianBaselineMicros(before), 1, 0.1);
}

TEST(CudaChildTest, AChildKilledWhileItPinsLeavesTheLimitAndTheNextBaseline) {
  LASTFLOP_NEED_GPU();
  const std::string limit = PersistingLimitOfANewProcess();
  ASSERT_NE(limit, "no answer");
  Worker worker("pinning");
  const AttemptResult before = worker.Run("before", worker.Pinned());
  ExpectFine(before);
  EXPECT_NE(before.effective_note.find("experts pinned"), std::string::npos)
      << before.effective_note;
  const AttemptResult killed = worker.RunUntilDead("killed", worker.Pinned(), "sampling");
  ASSERT_TRUE(killed.failure.has_value());
  EXPECT_EQ(killed.failure->kind, FailureKind::kRankLost);
  EXPECT_NE(killed.failure->message.find("killed by the test"), std::string::npos)
      << killed.failure->message;
  EXPECT_EQ(PersistingLimitOfANewProcess(), limit);
  const AttemptResult after = worker.Run("after", worker.Pinned());
  ExpectFine(after);
  EXPECT_NEAR(MedianBaselineMicros(after) / MedianBaselineMicros(before), 1, 0.1);
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == lastflop::kChildFlag) {
    return lastflop::RunAsChild(argv[2]);
  }
  if (argc == 2 && std::string(argv[1]) == lastflop::kLimitFlag) {
    return lastflop::PrintPersistingLimit();
  }
  testing::InitGoogleTest(&argc, argv);
  const int exit_code = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  constexpr int kAllSkipped = 77;  // As tests/main/test_main.cc.
  return exit_code == 0 && tests.successful_test_count() == 0 && tests.skipped_test_count() > 0
             ? kAllSkipped
             : exit_code;
}
