#include "worker/draw_memory.h"

#include <algorithm>

namespace lastflop {
namespace {

constexpr double kScoreBytes = 4;
constexpr double kRouteBytes = 4 + 4;  // An expert's id and its weight.

}  // namespace

int64_t NumExpertTokens(const Plan& plan, const Point& point, const Layout& layout,
                        const Step& step) {
  return layout.data_attention ? point.batch * QueryTokens(plan, point) : step.num_tokens;
}

double DrawMemoryBytes(const Model& model, const Plan& plan, const Point& point,
                       const Layout& layout, const Step& step) {
  const auto layers =
      static_cast<double>(std::count_if(step.layers.begin(), step.layers.end(), [&](int layer) {
        return model.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kMoe;
      }));
  if (layers == 0) {
    return 0;
  }
  const auto all_tokens = static_cast<double>(NumExpertTokens(plan, point, layout, step));
  const auto own_tokens = static_cast<double>(step.num_tokens);
  const auto experts = static_cast<double>(model.num_experts);
  const double route = static_cast<double>(model.top_k) * kRouteBytes;
  // Received routes and every layer's of all ranks, where tokens are exchanged.
  const double exchanged = layout.data_attention ? (layers + 1) * all_tokens * route : 0;
  const auto groups = static_cast<double>(std::max<int64_t>(1, layout.expert_groups));
  return layers * all_tokens * experts * kScoreBytes + layers * own_tokens * route + exchanged +
         all_tokens * experts / groups * kScoreBytes +
         (model.router.has_bias ? experts * kScoreBytes : 0);
}

}  // namespace lastflop
