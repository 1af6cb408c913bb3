#include "worker/cuda_plugin.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "step/make_step.h"
#include "tests/kernels_cuda/device_case.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plan_fields.h"
#include "tests/worker/plugin_files.h"
#include "worker/cuda_backend.h"
#include "worker/cuda_step_memory.h"
#include "worker/plugin_host.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDraw = 5;

Plan PluginPlan(const std::string& plugin, Fields fields = {}) {
  fields.emplace_back("moe.kernel", "plugin:" + plugin);
  return PlanOf(fields);
}

double RelativeError(const std::vector<float>& out, const std::vector<float>& reference) {
  EXPECT_EQ(out.size(), reference.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(out.size(), reference.size()); ++i) {
    error += std::pow(out[i] - reference[i], 2);
    norm += std::pow(reference[i], 2);
  }
  return norm > 0 ? std::sqrt(error / norm) : 1e9;
}

class CudaPluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTFLOP_NEED_GPU();
    gang_ = *JoinGang("", 0, 1, std::chrono::seconds(10));
  }

  std::unique_ptr<CudaBackend> MakeBackend(BackendOptions options, PluginHost* plugins) {
    options.plugins = plugins;
    auto backend = CudaBackend::Create(options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  // Final hidden states after a check that holds and a run.
  std::vector<float> OutputOf(const BackendOptions& options, const Plan& plan,
                              const Point& point = TinyPoint()) {
    PluginHost plugins(FilesOf({"moe_cuda", "prepared_cuda"}), {});
    const auto backend = MakeBackend(options, &plugins);
    const absl::Status started = backend->StartAttempt(plan, plan, point, *gang_);
    EXPECT_TRUE(started.ok()) << started;
    auto arm = backend->Prepare(plan, point, *gang_);
    EXPECT_TRUE(arm.ok()) << arm.status();
    if (!arm.ok()) {
      return {};
    }
    const auto check = (*arm)->Check(kDraw + 1);
    EXPECT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check.ok() && check->ok) << (check.ok() ? check->detail : "");
    EXPECT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    EXPECT_TRUE(timing.ok()) << timing.status();
    EXPECT_GT(timing.ok() ? timing->us : 0, 0);
    return *(*arm)->Output();
  }

  // What the check of a plan with the plugin says.
  absl::StatusOr<CheckResult> CheckOf(const std::string& plugin, const std::string& graph) {
    PluginHost plugins(FilesOf({plugin}), {});
    const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)), &plugins);
    auto arm = backend->Prepare(PluginPlan(plugin, {{"launch.graph", graph}}), TinyPoint(), *gang_);
    return arm.ok() ? (*arm)->Check(kDraw) : arm.status();
  }

  // The error of making a plan ready.
  absl::Status PrepareStatus(const Plan& plan, PluginHost* plugins) {
    const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)), plugins);
    return backend->Prepare(plan, TinyPoint(), *gang_).status();
  }

  std::unique_ptr<Gang> gang_;
};

TEST_F(CudaPluginTest, GivesTheOutputOfTheGroupedKernelInEveryFormat) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const BackendOptions options = TinyOptions(SmallModel(kind));
    for (const char* const format :
         {"bf16", "int4_g32", "int4_g128", "fp8_block", "nvfp4", "mxfp4"}) {
      const std::vector<float> grouped = OutputOf(options, PlanOf({{"moe.weights", format}}));
      const Plan plan = PluginPlan("moe_cuda", {{"moe.weights", format}, {"launch.graph", "full"}});
      EXPECT_LT(RelativeError(OutputOf(options, plan), grouped), 0.02)
          << ToWord(kind) << " " << format;
    }
  }
}

TEST_F(CudaPluginTest, GivesTheOutputOfTheGroupedKernelUnderEveryPlan) {
  const BackendOptions options = TinyOptions(SmallModel(AttentionKind::kMla));
  for (const Fields& fields : std::vector<Fields>{{{"launch.graph", "none"}},
                                                  {{"launch.graph", "piecewise"}},
                                                  {{"moe.expert_activation", "opportunistic:1"}}}) {
    EXPECT_LT(RelativeError(OutputOf(options, PluginPlan("moe_cuda", fields)),
                            OutputOf(options, PlanOf(fields))),
              0.02)
        << fields[0].second;
  }
  const Fields bf16 = {{"moe.weights", "bf16"}, {"launch.graph", "full"}};
  EXPECT_LT(RelativeError(OutputOf(options, PluginPlan("prepared_cuda", bf16)),
                          OutputOf(options, PlanOf(bf16))),
            0.02);
}

TEST_F(CudaPluginTest, RunsOneRankOfManyWithItsShareOfTheExperts) {
  BackendOptions options = TinyOptions(SmallModel(AttentionKind::kMla));
  options.shard = true;
  options.machine.link_gb_per_s = 100;
  options.machine.collective_latency_us = 10;
  for (const Fields& fields : std::vector<Fields>{
           {{"launch.graph", "full"}, {"parallel.tensor", "2"}, {"parallel.expert", "2"}},
           {{"launch.graph", "full"},
            {"parallel.data", "4"},
            {"parallel.expert", "4"},
            {"parallel.attention", "data"}}}) {
    EXPECT_LT(RelativeError(OutputOf(options, PluginPlan("moe_cuda", fields), TinyPoint(24)),
                            OutputOf(options, PlanOf(fields), TinyPoint(24))),
              0.02)
        << fields[1].first;
  }
}

TEST_F(CudaPluginTest, NamesTheBuildOfThePlugin) {
  PluginHost plugins(FilesOf({"moe_cuda"}), {});
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)), &plugins);
  EXPECT_EQ(backend->Environment().count("plugin:moe_cuda"), 0u);
  auto arm = backend->Prepare(PluginPlan("moe_cuda"), TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  EXPECT_THAT(backend->Environment().at("plugin:moe_cuda"), HasSubstr("moe_cuda 1.0, file "));
  EXPECT_THAT((*arm)->effective_note(), HasSubstr("plugin:moe_cuda is moe_cuda 1.0"));
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  const auto breakdown = (*arm)->MeasureBreakdown(3);
  ASSERT_TRUE(breakdown.ok()) << breakdown.status();
}

TEST_F(CudaPluginTest, FindsWrongOutputsAndLaunchesThatNeverWere) {
  for (const auto& [plugin, graph] :
       std::vector<std::pair<std::string, std::string>>{{"faulty_cuda_wrong", "none"},
                                                        {"faulty_cuda_wrong", "full"},
                                                        {"faulty_cuda_launch", "none"}}) {
    const auto check = CheckOf(plugin, graph);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_FALSE(check->ok) << plugin << " " << graph;
    EXPECT_THAT(check->detail, HasSubstr("moe.plugin in layer 0 disagrees with its reference"));
  }
  // In a capture a launch that CUDA refuses ends the capture.
  EXPECT_THAT(CheckOf("faulty_cuda_launch", "full").status().message(),
              HasSubstr("plugin:faulty_cuda_launch in run() broke the capture of a graph"));
}

TEST_F(CudaPluginTest, FindsWhatAPluginMustNotWrite) {
  for (const auto& [plugin, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"faulty_cuda_overrun", "it wrote past the end of its output: 1 of"},
           {"faulty_cuda_overwork", "past the end of its workspace of 256 bytes: 1 bytes"},
           {"faulty_cuda_scribble", "it changed its inputs"}}) {
    const auto check = CheckOf(plugin, "none");
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_FALSE(check->ok) << plugin;
    EXPECT_THAT(check->detail, HasSubstr(wanted));
  }
}

TEST_F(CudaPluginTest, FindsWorkOnAnotherStream) {
  const auto check = CheckOf("elsewhere_cuda", "full");
  EXPECT_FALSE(check.ok() && check->ok);
}

TEST_F(CudaPluginTest, NamesAPluginThatBreaksACaptureAndGoesOn) {
  PluginHost plugins(FilesOf({"faulty_cuda_waits", "moe_cuda"}), {});
  const auto backend = MakeBackend(TinyOptions(SmallModel(AttentionKind::kGqa)), &plugins);
  auto arm = backend->Prepare(PluginPlan("faulty_cuda_waits", {{"launch.graph", "full"}}),
                              TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  const absl::Status run = (*arm)->Run().status();
  EXPECT_EQ(run.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(run.message()),
              HasSubstr("plugin:faulty_cuda_waits in run() broke the capture of a graph"));
  EXPECT_THAT(std::string(run.message()), HasSubstr("launch.graph=none"));
  arm = backend->Prepare(PluginPlan("faulty_cuda_waits"), TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
  EXPECT_TRUE((*arm)->Run().ok());
  const auto breakdown = (*arm)->MeasureBreakdown(3);
  ASSERT_TRUE(breakdown.ok()) << breakdown.status();
  EXPECT_THAT(breakdown->method, HasSubstr("broke the capture of a graph"));
  EXPECT_TRUE((*arm)->Run().ok());
  arm = backend->Prepare(PluginPlan("moe_cuda", {{"launch.graph", "full"}}), TinyPoint(), *gang_);
  ASSERT_TRUE(arm.ok()) << arm.status();
  const auto check = (*arm)->Check(kDraw);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->ok) << check->detail;
}

TEST_F(CudaPluginTest, SaysWhatItCannotMakeReady) {
  PluginHost plugins(FilesOf({"moe_cuda", "moe_cpu", "moe_python.py", "faulty_cuda_greedy",
                              "faulty_cuda_no_graph", "prepared_cuda"}),
                     {});
  struct Case {
    Plan plan;
    PluginHost* plugins;
    absl::StatusCode code;
    std::string wanted;
  };
  const auto unsupported = absl::StatusCode::kUnimplemented;
  for (const Case& refused : std::vector<Case>{
           {PluginPlan("fast"), nullptr, unsupported, "--plugin fast=FILE"},
           {PluginPlan("moe_cpu"), &plugins, unsupported, "moe_cpu runs on CPUs"},
           {PluginPlan("moe_python"), &plugins, unsupported, "run on the CPU backend"},
           {PluginPlan("prepared_cuda"), &plugins, unsupported, "prepared_cuda reads bf16"},
           {PluginPlan("faulty_cuda_no_graph", {{"launch.graph", "full"}}), &plugins, unsupported,
            "launch.graph=none does not"},
           {PluginPlan("moe_cuda", {{"moe.group_m", "8"}}), &plugins, unsupported, "moe.group_m=8"},
           {PluginPlan("moe_cuda", {{"moe.l2_pin.share", "0.5"}}), &plugins, unsupported,
            "moe.l2_pin"},
           {PluginPlan("faulty_cuda_greedy"), &plugins, absl::StatusCode::kResourceExhausted,
            "GiB"}}) {
    const absl::Status status = PrepareStatus(refused.plan, refused.plugins);
    EXPECT_EQ(status.code(), refused.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.wanted));
  }
  EXPECT_TRUE(PrepareStatus(PluginPlan("faulty_cuda_no_graph"), &plugins).ok());
}

// Needs no GPU: query() looks at none.
TEST(CudaPluginMemoryTest, CountsWeightsInThePluginsLayoutAndThoseThatItIsMadeFrom) {
  PluginHost plugins(FilesOf({"moe_cuda", "prepared_cuda", "faulty_cuda_no_graph"}), {});
  const Model model = SmallModel(AttentionKind::kGqa);
  const Point point = TinyPoint();
  const auto memory_of = [&](const Plan& plan) {
    return MemoryOf({.model = model, .plan = plan, .point = point, .data = {}, .plugins = &plugins},
                    /*num_sms=*/132);
  };
  const auto shared_bytes = [](const CudaStepMemory& memory) {
    double bytes = 0;
    for (const auto& [key, of_key] : memory.shared) {
      bytes += of_key;
    }
    return bytes;
  };
  const Fields bf16 = {{"moe.weights", "bf16"}};
  const auto stored = memory_of(PluginPlan("moe_cuda", bf16));
  const auto prepared = memory_of(PluginPlan("prepared_cuda", bf16));
  ASSERT_TRUE(stored.ok() && prepared.ok()) << stored.status() << prepared.status();
  // Three matrices of 256 x 128 for each of 8 experts, in three layers.
  constexpr double kLayerBytes = 8.0 * 3 * 256 * 128 * 2;
  EXPECT_DOUBLE_EQ(stored->plugin_bytes, 0);
  EXPECT_DOUBLE_EQ(prepared->plugin_bytes, kLayerBytes);
  EXPECT_DOUBLE_EQ(shared_bytes(*prepared) - shared_bytes(*stored), kLayerBytes);
  // Six tokens, top 2, 128 features in fp32, and the guard.
  EXPECT_GE(stored->workspace_bytes, 6 * 2 * 128 * 4 + 4096);
  const auto uncapturable =
      memory_of(PluginPlan("faulty_cuda_no_graph", {{"launch.graph", "piecewise"}}));
  EXPECT_EQ(uncapturable.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(uncapturable.status().message()), HasSubstr("launch.graph=piecewise"));
}

}  // namespace
}  // namespace lastflop
