#include "worker/python_plugin.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plugin_files.h"
#include "worker/plugin_host.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Plan PlanWith(const std::string& kernel) {
  Plan plan;
  EXPECT_TRUE(SetPlanField("moe.weights", "bf16", plan).ok());
  EXPECT_TRUE(SetPlanField("moe.kernel", kernel, plan).ok());
  return plan;
}

struct Outcome {
  CheckResult check;
  absl::Status run;
  std::vector<float> output;
};

Outcome RunPlan(const Model& model, const std::string& kernel, PluginHost* plugins) {
  BackendOptions options = TinyOptions(model);
  options.plugins = plugins;
  Outcome outcome;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(PlanWith(kernel), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(6);
    outcome.run = check.status();
    if (check.ok()) {
      outcome.check = *check;
      ASSERT_TRUE((*arm)->SetDraw(5).ok());
      outcome.run = (*arm)->Run().status();
      outcome.output = *(*arm)->Output();
    }
  });
  return outcome;
}

std::string WhyNotLoaded(const std::string& name) {
  PluginHost host(FilesOf({name + ".py"}), {});
  const absl::Status status = host.Load(name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  return std::string(status.message());
}

// Whether the process ends within five seconds, or has.
bool IsGone(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) {
    return errno == ESRCH;
  }
  pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
  const bool is_gone = poll(&ended, 1, 5000) == 1;
  close(fd);
  return is_gone;
}

TEST(PythonPluginTest, GivesTheOutputOfTheGroupedKernel) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = TinyModel(kind);  // One with shared experts, one without.
    PluginHost plugins(FilesOf({"moe_python.py"}), {});
    const Outcome python = RunPlan(model, "plugin:moe_python", &plugins);
    const Outcome grouped = RunPlan(model, "grouped", nullptr);
    ASSERT_TRUE(python.run.ok()) << python.run;
    EXPECT_TRUE(python.check.ok) << python.check.detail;
    ASSERT_EQ(python.output.size(), grouped.output.size());
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < grouped.output.size(); ++i) {
      error += std::pow(python.output[i] - grouped.output[i], 2);
      norm += std::pow(grouped.output[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.02) << ToWord(kind);
    EXPECT_THAT(plugins.Environment().at("plugin:moe_python"),
                HasSubstr("moe_python 1.0, Python 3."));
  }
}

TEST(PythonPluginTest, SaysWhyAFileIsNoPlugin) {
  EXPECT_THAT(WhyNotLoaded("faulty_import"),
              HasSubstr("No module named 'no_such_module_anywhere' (line 11)"));
  EXPECT_THAT(WhyNotLoaded("faulty_exit"), HasSubstr("ended with exit code 7"));
  EXPECT_THAT(WhyNotLoaded("faulty_no_run"), HasSubstr("defines no run(state, weights, call)"));
  setenv("LASTFLOP_PYTHON", "/nowhere/python", 1);
  EXPECT_THAT(WhyNotLoaded("moe_python"),
              HasSubstr("/nowhere/python cannot be started: No such file"));
  unsetenv("LASTFLOP_PYTHON");
}

TEST(PythonPluginTest, PassesOnWhatItRaises) {
  PluginHost plugins(FilesOf({"moe_python.py", "faulty_raise.py", "faulty_crash.py"}), {});
  const Outcome raised = RunPlan(TinyModel(AttentionKind::kGqa), "plugin:faulty_raise", &plugins);
  EXPECT_EQ(raised.run.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(raised.run.message()), HasSubstr("ValueError: out of luck (line "));
  const Outcome crashed = RunPlan(TinyModel(AttentionKind::kGqa), "plugin:faulty_crash", &plugins);
  EXPECT_EQ(crashed.run.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(crashed.run.message()),
              HasSubstr("the Python process ended on signal 11"));

  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.plugins = &plugins;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    Plan plan = PlanWith("plugin:moe_python");
    ASSERT_TRUE(SetPlanField("moe.weights", "int4_g32", plan).ok());
    const absl::Status refused = backend.Prepare(plan, TinyPoint(), gang).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("reads weights in bf16, not in int4"));
  });
}

TEST(PythonPluginTest, TakesNoEarlierOutputForOneThatWasNotWritten) {
  PluginHost plugins(FilesOf({"faulty_idle.py"}), {});
  const Outcome idle = RunPlan(TinyModel(AttentionKind::kGqa), "plugin:faulty_idle", &plugins);
  ASSERT_TRUE(idle.run.ok()) << idle.run;
  EXPECT_FALSE(idle.check.ok);
  EXPECT_THAT(idle.check.detail, HasSubstr("moe.plugin in layer 0"));
}

TEST(PythonPluginTest, ItsProcessEndsWithItAndWithTheOneThatStartedIt) {
  auto plugin = PythonPlugin::Start(PluginPath("moe_python.py"));
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const pid_t pid = (*plugin)->pid();
  EXPECT_EQ(kill(pid, 0), 0);
  plugin->reset();
  EXPECT_TRUE(IsGone(pid));

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t starter = fork();
  if (starter == 0) {
    auto orphan = PythonPlugin::Start(PluginPath("faulty_hang.py"));
    const pid_t orphan_pid = orphan.ok() ? (*orphan)->pid() : -1;
    _exit(write(ends[1], &orphan_pid, sizeof(orphan_pid)) == sizeof(orphan_pid) ? 0 : 1);
  }
  pid_t orphan = -1;
  ASSERT_EQ(read(ends[0], &orphan, sizeof(orphan)), static_cast<ssize_t>(sizeof(orphan)));
  waitpid(starter, nullptr, 0);
  EXPECT_GT(orphan, 0);
  EXPECT_TRUE(IsGone(orphan));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lastflop
