#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/cpu_gang.h"
#include "tests/worker/plan_fields.h"
#include "tests/worker/plugin_files.h"
#include "worker/plugin_host.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDraw = 5;

// Final hidden states of every rank after a check that holds and a run.
std::vector<float> OutputOf(const Model& model, const Plan& plan, PluginHost* plugins) {
  BackendOptions options = TinyOptions(model);
  options.plugins = plugins;
  const auto num_ranks = static_cast<int>(plan.num_ranks());
  std::vector<std::vector<float>> outputs(static_cast<size_t>(num_ranks));
  OnRanks(options, num_ranks, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(plan, TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(kDraw + 1);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->detail;
    ASSERT_TRUE((*arm)->SetDraw(kDraw).ok());
    const auto timing = (*arm)->Run();
    ASSERT_TRUE(timing.ok()) << timing.status();
    outputs[static_cast<size_t>(gang.rank())] = *(*arm)->Output();
  });
  std::vector<float> all;
  for (const std::vector<float>& output : outputs) {
    all.insert(all.end(), output.begin(), output.end());
  }
  return all;
}

double RelativeError(const std::vector<float>& out, const std::vector<float>& reference) {
  EXPECT_EQ(out.size(), reference.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(out.size(), reference.size()); ++i) {
    error += std::pow(out[i] - reference[i], 2);
    norm += std::pow(reference[i], 2);
  }
  return std::sqrt(error / norm);
}

// What the check of a plan with the plugin says.
CheckResult CheckOf(const std::string& plugin) {
  PluginHost plugins(FilesOf({plugin}), {});
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.plugins = &plugins;
  CheckResult result;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(PlanOf({{"moe.kernel", "plugin:" + plugin}}), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const auto check = (*arm)->Check(kDraw);
    ASSERT_TRUE(check.ok()) << check.status();
    result = *check;
  });
  return result;
}

// The error of making a plan ready.
absl::Status PrepareStatus(const Fields& fields, PluginHost* plugins) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.plugins = plugins;
  absl::Status status;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    status = backend.Prepare(PlanOf(fields), TinyPoint(), gang).status();
  });
  return status;
}

class ExamplePluginTest : public ::testing::TestWithParam<Fields> {};

TEST_P(ExamplePluginTest, GivesTheOutputOfTheGroupedKernel) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    const Model model = TinyModel(kind);
    Fields fields = GetParam();
    const std::vector<float> grouped = OutputOf(model, PlanOf(fields), nullptr);
    PluginHost plugins(FilesOf({"moe_cpu"}), {});
    ASSERT_TRUE(plugins.Load("moe_cpu").ok());  // Before ranks, which are threads here.
    fields.emplace_back("moe.kernel", "plugin:moe_cpu");
    EXPECT_LT(RelativeError(OutputOf(model, PlanOf(fields), &plugins), grouped), 0.02)
        << ToWord(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ExamplePluginTest,
                         ::testing::Values(Fields{}, Fields{{"moe.weights", "bf16"}},
                                           Fields{{"moe.expert_activation", "opportunistic:1"}},
                                           Fields{{"parallel.tensor", "2"}},
                                           Fields{{"parallel.tensor", "2"},
                                                  {"parallel.expert", "2"}},
                                           Fields{{"parallel.tensor", "2"},
                                                  {"parallel.expert", "2"},
                                                  {"parallel.attention", "data"}}));

TEST(CpuPluginTest, NamesTheBuildOfThePluginInTheEnvironment) {
  PluginHost plugins(FilesOf({"moe_cpu"}), {});
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.plugins = &plugins;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    EXPECT_EQ(backend.Environment().count("plugin:moe_cpu"), 0u);
    auto arm = backend.Prepare(PlanOf({{"moe.kernel", "plugin:moe_cpu"}}), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    EXPECT_THAT(backend.Environment().at("plugin:moe_cpu"), HasSubstr("moe_cpu 1.0, file "));
    EXPECT_THAT((*arm)->effective_note(), HasSubstr("plugin:moe_cpu is moe_cpu 1.0"));
  });
}

TEST(CpuPluginTest, FindsAWrongOutput) {
  const CheckResult check = CheckOf("faulty_wrong");
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.detail, HasSubstr("moe.plugin in layer 0 disagrees with its reference"));
}

TEST(CpuPluginTest, FindsWhatAPluginMustNotWrite) {
  const CheckResult out = CheckOf("faulty_overrun");
  EXPECT_FALSE(out.ok);
  EXPECT_THAT(out.detail, HasSubstr("it wrote past the end of its output: 2 of"));
  const CheckResult workspace = CheckOf("faulty_overwork");
  EXPECT_FALSE(workspace.ok);
  EXPECT_THAT(workspace.detail, HasSubstr("past the end of its workspace of 64 bytes"));
  const CheckResult inputs = CheckOf("faulty_scribble");
  EXPECT_FALSE(inputs.ok);
  EXPECT_THAT(inputs.detail, HasSubstr("it changed its inputs"));
}

TEST(CpuPluginTest, SaysWhatItCannotMakeReady) {
  PluginHost plugins(FilesOf({"moe_cpu", "faulty_greedy", "faulty_refuse"}), {});
  const absl::Status missing = PrepareStatus({{"moe.kernel", "plugin:fast"}}, nullptr);
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("--plugin fast=FILE"));
  const absl::Status refused = PrepareStatus({{"moe.kernel", "plugin:faulty_refuse"}}, &plugins);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("only 7168 is built"));
  const absl::Status greedy = PrepareStatus({{"moe.kernel", "plugin:faulty_greedy"}}, &plugins);
  EXPECT_EQ(greedy.code(), absl::StatusCode::kResourceExhausted);
  const absl::Status format =
      PrepareStatus({{"moe.kernel", "plugin:moe_cpu"}, {"moe.weights", "fp8_block"}}, &plugins);
  EXPECT_FALSE(format.ok());
}

TEST(CpuPluginTest, IgnoresNoFieldOfLastflopsOwnKernels) {
  PluginHost plugins(FilesOf({"moe_cpu"}), {});
  for (const auto& [path, value] : Fields{{"moe.dequant", "separate"},
                                          {"moe.tile_order", "column_major"},
                                          {"moe.group_m", "8"},
                                          {"moe.cache_hint", "evict_first"}}) {
    const absl::Status status =
        PrepareStatus({{"moe.kernel", "plugin:moe_cpu"}, {path, value}}, &plugins);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(path, "=", value)));
  }
}

TEST(CpuPluginTest, PassesOnWhatARunSays) {
  PluginHost plugins(FilesOf({"faulty_fail"}), {});
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.plugins = &plugins;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(PlanOf({{"moe.kernel", "plugin:faulty_fail"}}), TinyPoint(), gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    const absl::Status run = (*arm)->Run().status();
    EXPECT_EQ(run.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(run.message(), "moe.kernel=plugin:faulty_fail: out of luck ");
  });
}

}  // namespace
}  // namespace lastflop
