// Plans of two ranks with sequences of their own and experts reached by all-to-all: the CPU
// backend's output, on two GPUs, or over peer memory with both ranks on one.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"
#include "tests/worker/cpu_gang.h"
#include "worker/cuda_backend.h"

namespace lastflop {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr int kRanks = 2;
constexpr int64_t kDraw = 5;
// bf16 activations, rounded at other places: a few units of 2^-8 over three layers.
constexpr double kMostDistance = 0.02;

absl::StatusOr<Plan> PlanOf(const Fields& fields) {
  Plan plan;
  for (const auto& [path, value] : fields) {
    if (const absl::Status status = SetPlanField(path, value, plan); !status.ok()) {
      return status;
    }
  }
  return plan;
}

Fields DataAttention(const Fields& more) {
  Fields fields = {
      {"parallel.tensor", "2"}, {"parallel.expert", "2"}, {"parallel.attention", "data"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

// The whole batch on one rank of the CPU backend.
absl::StatusOr<std::vector<float>> CpuOutputOf(const Model& model, const Point& point) {
  auto alone = JoinGang("", 0, 1, std::chrono::seconds(10));
  auto cpu = CpuBackend::Create(TinyOptions(model));
  if (!alone.ok() || !cpu.ok()) {
    return absl::InternalError("no CPU backend");
  }
  auto arm = (*cpu)->Prepare(Plan{}, point, **alone);
  if (!arm.ok()) {
    return arm.status();
  }
  absl::Status status = (*arm)->SetDraw(kDraw);
  if (status.ok()) {
    status = (*arm)->Run().status();
  }
  return status.ok() ? (*arm)->Output() : status;
}

// "ok", or what went wrong.
std::string CompareWithCpu(CudaBackend& backend, Gang& gang, const Model& model, const Plan& plan,
                           const Point& point) {
  if (const absl::Status status = backend.StartAttempt(plan, plan, point, gang); !status.ok()) {
    return status.ToString();
  }
  auto arm = backend.Prepare(plan, point, gang);
  if (!arm.ok()) {
    return arm.status().ToString();
  }
  const auto check = (*arm)->Check(kDraw + 1);
  if (!check.ok() || !check->ok) {
    return check.ok() ? check->detail : check.status().ToString();
  }
  if (!(*arm)->SetDraw(kDraw).ok()) {
    return "no draw";
  }
  const auto timing = (*arm)->Run();
  if (!timing.ok() || timing->us <= 0) {
    return timing.status().ToString();
  }
  const auto output = (*arm)->Output();
  const auto wanted = CpuOutputOf(model, point);
  const auto breakdown = (*arm)->MeasureBreakdown(2);
  if (!output.ok() || !wanted.ok() || !breakdown.ok()) {
    return absl::StrCat(output.status().ToString(), wanted.status().ToString(),
                        breakdown.status().ToString());
  }
  // Rank 0 has the first tokens, and one more where they do not divide.
  const size_t first = gang.rank() == 0 ? 0 : wanted->size() - output->size();
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < output->size(); ++i) {
    error += std::pow((*output)[i] - (*wanted)[first + i], 2);
    norm += std::pow((*wanted)[first + i], 2);
  }
  if (!(std::sqrt(error / norm) < kMostDistance)) {
    return absl::StrCat("rank ", gang.rank(), " is ", std::sqrt(error / norm), " away");
  }
  bool has_exchange = false;
  bool has_wait = false;
  for (const BreakdownEntry& entry : breakdown->entries) {
    has_exchange = has_exchange || (entry.op == "moe.dispatch" && entry.us > 0);
    has_wait = has_wait || entry.op == "all_to_all.wait";
  }
  const bool is_peer = plan.collectives.all_to_all == AllToAllAlgorithm::kP2p;
  return has_exchange && has_wait == is_peer ? "ok" : "the breakdown names no exchange";
}

class CudaDataAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto outcomes = RunProcessRanks(1, [](int) -> std::string {
      int count = 0;
      return absl::StrCat(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    });
    num_gpus_ = std::atoi(outcomes.at(0).text.c_str());
    NeedGpus(1);
  }

  void NeedGpus(int count) {
    if (num_gpus_ < count) {
      const char* need = std::getenv("LASTFLOP_REQUIRE_GPU");
      if (need != nullptr && std::string(need) == "1") {
        FAIL() << "LASTFLOP_REQUIRE_GPU=1 and there are " << num_gpus_ << " GPUs of " << count;
      }
      GTEST_SKIP() << "fewer GPUs than " << count;
    }
  }

  std::vector<RankOutcome> Run(const Model& model, const std::vector<Fields>& plans,
                               const Point& point) const {
    const std::string path = FreshRendezvous();
    return RunProcessRanks(kRanks, [&](int rank) -> std::string {
      auto gang = JoinGang(path, rank, kRanks, std::chrono::seconds(30));
      BackendOptions options = TinyOptions(model);
      options.rank = rank;
      options.num_ranks = kRanks;
      options.device_index = rank % num_gpus_;
      auto backend = CudaBackend::Create(options);
      if (!gang.ok() || !backend.ok()) {
        return absl::StrCat(gang.status().ToString(), backend.status().ToString());
      }
      std::string result = "ok";
      for (size_t i = 0; i < plans.size() && result == "ok"; ++i) {
        const auto plan = PlanOf(plans[i]);
        result = plan.ok() ? CompareWithCpu(**backend, **gang, model, *plan, point)
                           : plan.status().ToString();
        result = result == "ok" ? result : absl::StrCat("plan ", i, ": ", result);
      }
      (*gang)->Barrier().IgnoreError();
      return result;
    });
  }

  static void ExpectAll(const std::vector<RankOutcome>& outcomes, const std::string& text) {
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_TRUE(text == "ok" ? outcome.text == "ok" : absl::StrContains(outcome.text, text))
          << outcome.text;
    }
  }

  int num_gpus_ = 0;
};

TEST_F(CudaDataAttentionTest, GivesTheCpuBackendsOutput) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    ExpectAll(Run(SmallModel(kind),
                  {DataAttention({}),
                   DataAttention({{"launch.graph", "full"}}),
                   DataAttention({{"launch.graph", "piecewise"}, {"moe.kernel", "fused"}}),
                   DataAttention({{"moe.dequant", "separate"}}),
                   {{"parallel.data", "2"}, {"parallel.expert", "2"}, {"launch.graph", "full"}}},
                  TinyPoint()),
              "ok");
  }
}

TEST_F(CudaDataAttentionTest, SplitsABatchThatDoesNotDivide) {
  ExpectAll(Run(SmallModel(AttentionKind::kMla), {DataAttention({{"launch.graph", "full"}})},
                TinyPoint(5)),
            "ok");
}

TEST_F(CudaDataAttentionTest, LeavesARankWithoutTokensForItsExperts) {
  Point point = TinyPoint(3);
  point.routing.distribution = Distribution::kAllToOne;
  ExpectAll(
      Run(SmallModel(AttentionKind::kGqa),
          {DataAttention({{"launch.graph", "full"}}), DataAttention({{"moe.kernel", "fused"}})},
          point),
      "ok");
}

TEST_F(CudaDataAttentionTest, RunsPromptsAndDrafts) {
  Point prefill = TinyPoint(3);
  prefill.phase = Phase::kPrefill;
  ExpectAll(
      Run(SmallModel(AttentionKind::kGqa), {DataAttention({{"launch.graph", "full"}})}, prefill),
      "ok");
}

TEST_F(CudaDataAttentionTest, GivesTheSameByNccl) {
  NeedGpus(2);
  if (IsSkipped() || HasFailure()) {
    return;
  }
  ExpectAll(Run(SmallModel(AttentionKind::kMla),
                {DataAttention({{"collectives.all_to_all", "nccl"}}),
                 DataAttention({{"collectives.all_to_all", "nccl"}, {"launch.graph", "full"}}),
                 DataAttention({{"launch.graph", "full"}})},
                TinyPoint(5)),
            "ok");
}

TEST_F(CudaDataAttentionTest, RefusesABatchSmallerThanItsRanks) {
  ExpectAll(Run(SmallModel(AttentionKind::kGqa), {DataAttention({})}, TinyPoint(1)),
            "1 would have no sequence");
}

TEST_F(CudaDataAttentionTest, NamesWhatItCannotHonour) {
  const std::vector<Fields> plans = {
      DataAttention({{"collectives.payload", "fp8"}}),
      DataAttention({{"collectives.fuse_norm", "true"}}),
      DataAttention({{"collectives.all_reduce", "nccl"}, {"collectives.nccl.channels", "2"}}),
      {{"parallel.tensor", "2"}, {"collectives.all_to_all", "nccl"}}};
  const std::vector<std::string> named = {"collectives.payload=fp8", "collectives.fuse_norm=true",
                                          "collectives.nccl=", "collectives.all_to_all=nccl"};
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto outcomes = Run(SmallModel(AttentionKind::kGqa), {plans[i]}, TinyPoint());
    ExpectAll(outcomes, "UNIMPLEMENTED");
    ExpectAll(outcomes, named[i]);
  }
}

}  // namespace
}  // namespace lastflop
