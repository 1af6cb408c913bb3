#include "kernels/router/router_cuda.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/router/router.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

struct Chosen {
  std::vector<int32_t> expert_ids;
  std::vector<float> weights;
};

Chosen Reference(const RouterShape& shape, const std::vector<float>& scores,
                 const std::vector<float>& bias) {
  const auto slots = static_cast<size_t>(shape.num_tokens * shape.top_k);
  Chosen chosen = {std::vector<int32_t>(slots), std::vector<float>(slots)};
  RouterReference(shape, scores, bias, chosen.expert_ids, chosen.weights);
  return chosen;
}

Chosen OnDevice(const RouterShape& shape, const std::vector<float>& scores,
                const std::vector<float>& bias) {
  const DeviceArray<float> device_scores(scores);
  const DeviceArray<float> device_bias(bias);
  const DeviceArray<int32_t> expert_ids(shape.num_tokens * shape.top_k);
  const DeviceArray<float> weights(shape.num_tokens * shape.top_k);
  const DeviceArray<std::byte> workspace(RouterCudaWorkspaceBytes(shape));
  LASTFLOP_EXPECT_OK(LaunchRouter(shape, device_scores.get(),
                                  shape.router.has_bias ? device_bias.get() : nullptr,
                                  expert_ids.get(), weights.get(), workspace.get(), nullptr));
  return {expert_ids.Download(), weights.Download()};
}

void ExpectAgreement(const RouterShape& shape, const std::string& name) {
  ASSERT_TRUE(ValidateRouter(shape).ok()) << ValidateRouter(shape);
  // Multiples of 1/64 repeat: ties are common, and no rounding breaks them.
  std::vector<float> scores;
  for (int64_t i = 0; i < shape.num_tokens * shape.num_experts; ++i) {
    const float unit = CounterUniform(3, 5, static_cast<uint64_t>(i));
    scores.push_back(std::floor(unit * 512) / 64 - 4);
  }
  std::vector<float> bias;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    bias.push_back(std::floor(CounterUniform(3, 6, static_cast<uint64_t>(e)) * 8) / 16);
  }
  const Chosen want = Reference(shape, scores, bias);
  const Chosen got = OnDevice(shape, scores, bias);
  EXPECT_EQ(got.expert_ids, want.expert_ids)
      << name << " experts=" << shape.num_experts << " tokens=" << shape.num_tokens;
  for (size_t i = 0; i < want.weights.size(); ++i) {
    ASSERT_NEAR(got.weights[i], want.weights[i], 1e-5 * std::abs(want.weights[i]) + 1e-7)
        << name << " slot " << i;
  }
}

TEST(RouterCudaTest, AgreesWithTheReferenceUnderEveryRule) {
  LASTFLOP_NEED_GPU();
  struct Rule {
    std::string name;
    RouterDims dims;
    int64_t keep = 0;
  };
  const std::vector<Rule> rules = {
      {"plain", {}},
      {"qwen", {.renormalize = true}},
      {"opportunistic", {.renormalize = true}, 3},
      {"softmax with bias", {.has_bias = true}},
      {"gpt-oss", {.softmax_after_top_k = true}},
      {"kimi",
       {.scoring = RouterScoring::kSigmoid,
        .has_bias = true,
        .renormalize = true,
        .scaling_factor = 2.827}},
      {"deepseek",
       {.scoring = RouterScoring::kSigmoid,
        .has_bias = true,
        .num_groups = 4,
        .top_k_groups = 2,
        .renormalize = true,
        .scaling_factor = 2.5}},
      {"deepseek, opportunistic",
       {.scoring = RouterScoring::kSigmoid, .has_bias = true, .num_groups = 4, .top_k_groups = 2},
       2},
      {"softmax in groups", {.num_groups = 4, .top_k_groups = 3}},
  };
  for (const Rule& rule : rules) {
    for (const int64_t num_tokens : {0, 1, 19, 1000}) {
      for (const int64_t num_experts : {12, 60, 128, 384, 2000}) {
        ExpectAgreement({.num_tokens = num_tokens,
                         .num_experts = num_experts,
                         .top_k = 6,
                         .router = rule.dims,
                         .opportunistic_keep = rule.keep},
                        rule.name);
      }
    }
  }
  // Groups of one, as many as there may be, and all slots that there may be.
  ExpectAgreement(
      {.num_tokens = 5,
       .num_experts = 64,
       .top_k = 40,
       .router = {.scoring = RouterScoring::kSigmoid, .num_groups = 64, .top_k_groups = 50}},
      "groups of one");
  ExpectAgreement({.num_tokens = 5, .num_experts = 64, .top_k = 64, .router = {}}, "all experts");
  ExpectAgreement({.num_tokens = 9,
                   .num_experts = 256,
                   .top_k = 8,
                   .router = {.scoring = RouterScoring::kSigmoid,
                              .has_bias = true,
                              .num_groups = 8,
                              .top_k_groups = 4,
                              .renormalize = true,
                              .scaling_factor = 2.5}},
                  "deepseek-v3");
}

TEST(RouterCudaTest, AgreesOnScoresWithoutTies) {
  LASTFLOP_NEED_GPU();
  std::mt19937_64 generator(std::random_device{}());
  std::normal_distribution<float> normal;
  const RouterShape shape = {.num_tokens = 333, .num_experts = 128, .top_k = 8, .router = {}};
  std::vector<float> scores(333 * 128);
  for (float& score : scores) {
    score = 3 * normal(generator);
  }
  EXPECT_EQ(OnDevice(shape, scores, {}).expert_ids, Reference(shape, scores, {}).expert_ids);
}

TEST(RouterCudaTest, ChoosesNothingThatIsNoNumber) {
  LASTFLOP_NEED_GPU();
  const RouterShape shape = {.num_tokens = 2, .num_experts = 4, .top_k = 2, .router = {}};
  const Chosen got = OnDevice(shape, {NAN, NAN, NAN, NAN, NAN, 1, -INFINITY, NAN}, {});
  EXPECT_EQ(got.expert_ids, (std::vector<int32_t>{-1, -1, 1, -1}));
  EXPECT_EQ(got.weights[0], 0);
  EXPECT_EQ(got.weights[3], 0);
}

TEST(RouterCudaTest, RefusesABiasThatIsNotThere) {
  const RouterShape shape = {
      .num_tokens = 1, .num_experts = 4, .top_k = 2, .router = {.has_bias = true}};
  EXPECT_EQ(LaunchRouter(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
