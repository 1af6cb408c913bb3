#include "worker/plugin_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/worker/plugin_files.h"
#include "worker/plugin_watch.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

lastflop_moe_problem TinyProblem() {
  const auto problem = PluginProblemOf({.num_tokens = 4,
                                        .top_k = 2,
                                        .num_local_experts = 8,
                                        .hidden_size = 64,
                                        .moe_intermediate_size = 32},
                                       8, 0);
  EXPECT_TRUE(problem.ok()) << problem.status();
  lastflop_moe_problem tiny = *problem;
  tiny.device = LASTFLOP_DEVICE_CPU;
  tiny.num_threads = 1;
  return tiny;
}

absl::Status LoadStatus(PluginFiles files, const std::string& name) {
  PluginHost host(std::move(files), {});
  return host.Load(name).status();
}

TEST(PluginHostTest, LoadsOnceAndSaysWhatItLoaded) {
  PluginHost host(FilesOf({"moe_cpu"}), {});
  EXPECT_TRUE(host.Environment().empty());
  const auto first = host.Load("moe_cpu");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*host.Load("moe_cpu"), *first);
  EXPECT_EQ((*first)->title, "moe_cpu 1.0");
  EXPECT_THAT(host.Environment().at("plugin:moe_cpu"),
              HasSubstr(*FingerprintOfFile(PluginPath("moe_cpu"))));
}

TEST(PluginHostTest, RefusesWhatIsNoPluginWithTheReason) {
  const auto expect = [](const absl::Status& status, const std::string& reason) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
    EXPECT_THAT(std::string(status.message()), HasSubstr("moe.kernel=plugin:"));
  };
  expect(LoadStatus({}, "fast"), "offers no such plugin; --plugin fast=FILE does");
  expect(LoadStatus({{"gone", {.path = "/nowhere/gone.so"}}}, "gone"), "no such file");
  expect(LoadStatus(FilesOf({"faulty_abi"}), "faulty_abi"), "ABI version 2");
  expect(LoadStatus(FilesOf({"faulty_no_entry"}), "faulty_no_entry"),
         "does not export lastflop_plugin_entry()");
  const std::string text = ::testing::TempDir() + "no_library.so";
  std::ofstream(text) << "This is text.";
  const auto files = ParsePluginFlags({"text=" + text});
  ASSERT_TRUE(files.ok()) << files.status();
  expect(LoadStatus(*files, "text"), "no_library.so");
}

TEST(PluginHostTest, DoesNotMixTwoBuildsOfAFile) {
  PluginFiles files = FilesOf({"moe_cpu"});
  files["moe_cpu"].fingerprint = "0123456789abcdef";
  const absl::Status status = LoadStatus(files, "moe_cpu");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has changed since the worker started"));
}

TEST(PluginHostTest, PassesOnWhyAPluginCannotRunAProblem) {
  PluginHost host(FilesOf({"faulty_refuse", "faulty_prepared"}), {});
  const auto refused = PluginMoe::Create(**host.Load("faulty_refuse"), TinyProblem(), nullptr);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(refused.status().message(),
            "moe.kernel=plugin:faulty_refuse: hidden_size=64: only 7168 is built");
  const auto no_prepare = PluginMoe::Create(**host.Load("faulty_prepared"), TinyProblem(), nullptr);
  EXPECT_THAT(std::string(no_prepare.status().message()), HasSubstr("has no prepare()"));
}

TEST(ParsePluginFlagsTest, RefusesWhatIsNoNameAndFile) {
  const std::string file = PluginPath("moe_cpu");
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"fast"},
                                                {"=" + file},
                                                {"fast="},
                                                {"a b=" + file},
                                                {"fast=/nowhere.so"},
                                                {"fast=/tmp"},
                                                {"fast=" + file, "fast=" + file}}) {
    EXPECT_EQ(ParsePluginFlags(flags).status().code(), absl::StatusCode::kInvalidArgument)
        << flags.back();
  }
}

TEST(PluginWatchTest, ShowsWhereADeadProcessWas) {
  const auto watch = PluginWatch::Create();
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(watch->Current().where, "");
  const pid_t pid = fork();
  if (pid == 0) {
    { const PluginWatch::Call returned(&*watch, "plugin:fast in query()"); }
    const PluginWatch::Call call(&*watch, "plugin:fast in run()");
    _exit(1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(watch->Current().where, "plugin:fast in run()");
  EXPECT_GE(watch->Current().since.count(), 0);
}

}  // namespace
}  // namespace lastflop
