// Plans of two ranks on two GPUs: every way to all-reduce gives a checked step, and the same
// output.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"
#include "tests/worker/cpu_gang.h"
#include "worker/cuda_backend.h"

namespace lastflop {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// "ok", what ran, then the output's first values; or what went wrong.
std::string StepOf(CudaBackend& backend, Gang& gang, const Fields& fields) {
  Plan plan;
  for (const auto& [path, value] : fields) {
    if (const absl::Status status = SetPlanField(path, value, plan); !status.ok()) {
      return status.ToString();
    }
  }
  if (const absl::Status status = backend.StartAttempt(plan, plan, TinyPoint(), gang);
      !status.ok()) {
    return status.ToString();
  }
  auto arm = backend.Prepare(plan, TinyPoint(), gang);
  if (!arm.ok()) {
    return arm.status().ToString();
  }
  const auto check = (*arm)->Check(6);
  if (!check.ok() || !check->ok) {
    return check.ok() ? check->detail : check.status().ToString();
  }
  if (!(*arm)->SetDraw(5).ok()) {
    return "no draw";
  }
  const auto timing = (*arm)->Run();
  if (!timing.ok() || timing->us <= 0) {
    return timing.status().ToString();
  }
  const auto output = (*arm)->Output();
  const auto breakdown = (*arm)->MeasureBreakdown(2);
  if (!output.ok() || !breakdown.ok()) {
    return absl::StrCat(output.status().ToString(), breakdown.status().ToString());
  }
  std::string text = absl::StrCat("ok ", ToWord((*arm)->effective_plan().collectives.all_reduce));
  for (const BreakdownEntry& entry : breakdown->entries) {
    if (entry.op == "all_reduce.wait") {
      absl::StrAppend(&text, "+wait");
    }
  }
  for (size_t i = 0; i < 64; ++i) {
    absl::StrAppend(&text, " ", (*output)[i]);
  }
  return text;
}

std::vector<RankOutcome> RunGang(const Fields& fields) {
  const std::string path = FreshRendezvous();
  return RunProcessRanks(2, [&](int rank) -> std::string {
    auto gang = JoinGang(path, rank, 2, std::chrono::seconds(30));
    Model model = TinyModel(AttentionKind::kGqa);
    model.hidden_size = 256;
    model.moe_intermediate_size = 256;
    BackendOptions options = TinyOptions(model);
    options.rank = rank;
    options.num_ranks = 2;
    options.device_index = rank;
    auto backend = CudaBackend::Create(options);
    if (!gang.ok() || !backend.ok()) {
      return absl::StrCat(gang.status().ToString(), backend.status().ToString());
    }
    const std::string text = StepOf(**backend, **gang, fields);
    (*gang)->Barrier().IgnoreError();
    return text;
  });
}

class CudaGangTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto outcomes = RunProcessRanks(1, [](int) -> std::string {
      int count = 0;
      return absl::StrCat(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    });
    if (std::atoi(outcomes.at(0).text.c_str()) < 2) {
      const char* need = std::getenv("LASTFLOP_REQUIRE_GPU");
      if (need != nullptr && std::string(need) == "1") {
        FAIL() << "LASTFLOP_REQUIRE_GPU=1 and there are no two GPUs";
      }
      GTEST_SKIP() << "fewer than two GPUs";
    }
  }
};

TEST_F(CudaGangTest, RunsEveryAllReduceOfAPlanAndSaysWhatRan) {
  std::vector<double> reference;
  for (const auto& [ran, fields] : std::vector<std::pair<std::string, Fields>>{
           {"nccl", {{"collectives.all_reduce", "nccl"}}},
           {"nccl",
            {{"collectives.all_reduce", "nccl"},
             {"collectives.nccl.algorithm", "ring"},
             {"collectives.nccl.protocol", "simple"},
             {"collectives.nccl.channels", "2"}}},
           {"one_shot+wait", {{"collectives.all_reduce", "auto"}}},
           {"one_shot+wait", {{"collectives.all_reduce", "one_shot"}, {"launch.graph", "full"}}},
           {"two_shot+wait", {{"collectives.all_reduce", "two_shot"}, {"launch.graph", "full"}}},
           {"one_shot+wait", {{"collectives.fuse_norm", "true"}, {"launch.graph", "full"}}}}) {
    Fields all = fields;
    all.emplace_back("parallel.tensor", "2");
    const auto outcomes = RunGang(all);
    for (const RankOutcome& outcome : outcomes) {
      const std::vector<std::string> words = absl::StrSplit(outcome.text, ' ');
      ASSERT_EQ(words.at(0), "ok") << outcome.text;
      EXPECT_EQ(words.at(1), ran) << fields[0].first << "=" << fields[0].second;
      std::vector<double> values(words.size() - 2);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(absl::SimpleAtod(words[i + 2], &values[i]));
      }
      if (reference.empty()) {
        reference = values;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], reference[i], 0.05) << fields[0].first << "=" << fields[0].second;
      }
    }
  }
}

TEST_F(CudaGangTest, NamesWhatItCannotHonour) {
  for (const auto& [reason, fields] : std::vector<std::pair<std::string, Fields>>{
           {"collectives.all_reduce=ring", {{"collectives.all_reduce", "ring"}}},
           {"collectives.nccl",
            {{"collectives.all_reduce", "one_shot"}, {"collectives.nccl.channels", "2"}}},
           {"collectives.fuse_norm",
            {{"collectives.all_reduce", "two_shot"}, {"collectives.fuse_norm", "true"}}}}) {
    Fields all = fields;
    all.emplace_back("parallel.tensor", "2");
    for (const RankOutcome& outcome : RunGang(all)) {
      EXPECT_NE(outcome.text.find("UNIMPLEMENTED"), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find(reason), std::string::npos) << outcome.text;
    }
  }
}

}  // namespace
}  // namespace lastflop
