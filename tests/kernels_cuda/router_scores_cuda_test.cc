#include "kernels/router/router_scores_cuda.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "step/routing.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

Model SmallModel(int64_t num_experts, int64_t top_k, int64_t num_groups, int64_t top_k_groups) {
  Model model;
  model.num_layers = 5;
  model.num_experts = num_experts;
  model.top_k = top_k;
  model.router.num_groups = num_groups;
  model.router.top_k_groups = top_k_groups;
  model.layer_kinds.assign(5, LayerKind::kMoe);
  return model;
}

// The draw on the device lies on the host's grid, and differs by a step of it at most, seldom.
void ExpectSameDraw(const Model& model, const Routing& routing, int64_t num_tokens, int64_t draw,
                    const std::string& name) {
  const std::vector<int> layers = {1, 2, 4};
  const auto plan = MakeRouterScorePlan(model, routing, layers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const DeviceArray<std::byte> tables(plan->tables);
  const int64_t of_layer = num_tokens * model.num_experts;
  const DeviceArray<float> device(3 * of_layer);
  LASTFLOP_EXPECT_OK(
      LaunchRouterScores(*plan, tables.get(), num_tokens, draw, device.get(), nullptr));
  const std::vector<float> got = device.Download();
  int64_t num_different = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto want = MakeRouterScores(model, routing, num_tokens, layers[i], draw);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto begin = got.begin() + static_cast<int64_t>(i) * of_layer;
    const std::vector<float> of_device(begin, begin + of_layer);
    for (size_t s = 0; s < of_device.size(); ++s) {
      ASSERT_NEAR(of_device[s], (*want)[s], 1.01 / 4096) << name << " layer " << layers[i];
      num_different += of_device[s] != (*want)[s] ? 1 : 0;
    }
    if (routing.distribution == Distribution::kBalanced ||
        routing.distribution == Distribution::kAllToOne) {
      // Planned choices are the same without exception, if not in the same order.
      std::vector<int32_t> ids = ChooseExperts(model, of_device, num_tokens, 0);
      std::vector<int32_t> want_ids = ChooseExperts(model, *want, num_tokens, 0);
      for (int64_t t = 0; t < num_tokens; ++t) {
        std::sort(ids.begin() + t * model.top_k, ids.begin() + (t + 1) * model.top_k);
        std::sort(want_ids.begin() + t * model.top_k, want_ids.begin() + (t + 1) * model.top_k);
      }
      EXPECT_EQ(ids, want_ids) << name << " layer " << layers[i];
    }
  }
  EXPECT_LE(num_different, std::max<int64_t>(2, 3 * of_layer / 500)) << name;
}

TEST(RouterScoresCudaTest, DrawsWhatTheHostDraws) {
  LASTFLOP_NEED_GPU();
  for (const Distribution distribution : {Distribution::kUniform, Distribution::kZipf,
                                          Distribution::kBalanced, Distribution::kAllToOne}) {
    Routing routing;
    routing.distribution = distribution;
    routing.exponent = 1.1;
    routing.seed = 99;
    for (const int64_t num_tokens : {1, 8, 77, 256}) {
      for (const int64_t draw : {0, 3}) {
        ExpectSameDraw(SmallModel(384, 8, 1, 1), routing, num_tokens, draw, "no groups");
        ExpectSameDraw(SmallModel(61, 3, 1, 1), routing, num_tokens, draw, "odd");
        ExpectSameDraw(SmallModel(256, 8, 8, 4), routing, num_tokens, draw, "groups");
        ExpectSameDraw(SmallModel(60, 6, 5, 4), routing, num_tokens, draw, "groups, uneven");
      }
    }
  }
}

}  // namespace
}  // namespace lastflop
