#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "spec/campaign_reader.h"

namespace lastflop {

// A model without a file: 384 experts, 64 heads, two layers.
inline Model SmallModel() {
  Model model;
  model.name = "small";
  model.hidden_size = 7168;
  model.num_layers = 3;
  model.layer_kinds = {LayerKind::kDense, LayerKind::kMoe, LayerKind::kMoe};
  model.num_experts = 384;
  model.top_k = 8;
  model.moe_intermediate_size = 2048;
  model.attention.num_heads = 64;
  return model;
}

// Hooks that answer with SmallModel and find plans whose expert degree does not divide 384, and
// points with fewer sequences than data ranks, infeasible.
inline CampaignHooks SmallHooks() {
  CampaignHooks hooks;
  hooks.read_model = [](const std::string& path) -> absl::StatusOr<Model> {
    if (path.find("missing") != std::string::npos) {
      return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
    }
    return SmallModel();
  };
  hooks.check_plan = [](const Campaign& campaign, const Plan& plan) {
    const int64_t rest = campaign.model.num_experts % plan.parallel.expert;
    return rest == 0 ? absl::OkStatus()
                     : absl::InvalidArgumentError(absl::StrCat(
                           "parallel.expert=", plan.parallel.expert, ": ",
                           campaign.model.num_experts, " mod ", plan.parallel.expert, " = ", rest));
  };
  hooks.check_point = [](const Campaign&, const Plan& plan, const Point& point) {
    return point.batch >= plan.parallel.data
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat("batch ", point.batch, " over data ", plan.parallel.data));
  };
  hooks.op_names = [](const Campaign&, const Plan&) -> absl::StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{"moe.gate_up", "moe.down"};
  };
  return hooks;
}

inline constexpr char kGoodCampaign[] = R"yaml(schema: 1
name: no
question: What is faster?
model: {config: models/small.json, layers: 2}
machine: auto
baseline:
  parallel: {tensor: 8, expert: 1}
  moe: {weights: int4_g32, kernel: grouped, tile_order: row_major}
  collectives.all_reduce: nccl
  launch:
    graph: full
workload:
  routing: {distribution: zipf, exponent: 1.0, seed: 7}
  points:
    - {phase: decode, batch: 1, context: 4096, time_share: 0.2}
    - {phase: decode, batch: 64, context: 4096, time_share: 0.5}
    - {phase: prefill, batch: 2, context: 512, time_share: 0.3, routing: {distribution: uniform}}
measure: {launches: 3, min_pairs: 30, half_width: 0.5%, max_time: 3s, confidence: 0.95}
budget: {effort: 3w, wall: 6m, max_error: 0}
economics: {gpu_hours: 50000, engineer_hour_in_gpu_hours: 40}
interventions:
  - id: expert-parallel
    title: Keep experts whole
    tier: 1
    effort: 2d
    risk: medium
    quality: exact
    switchable: deployment
    claim: {speedup: [1.2, 1.5], of: step, batch: [64, null], source: estimate}
    prior: {result: "+2%", source: measurement}
    needs: []
    excludes: [fused]
    set: {parallel.expert: 8}
    try: {moe.tile_order: [row_major, column_major]}
  - id: fused
    effort: {low: 30m, likely: 1h, high: 3d}
    claim: {speedup: 1.3, of: "op:moe.down", source: paper}
    set: {moe: {kernel: fused}}
)yaml";

inline absl::StatusOr<Campaign> ReadText(const std::string& text,
                                         const std::vector<std::string>& overrides = {},
                                         const std::string& directory = "") {
  return ReadCampaign(text, "c.yaml", directory, overrides, SmallHooks());
}

// kGoodCampaign with one change; the text must be there.
inline std::string Changed(const std::string& from, const std::string& to) {
  const std::string text = kGoodCampaign;
  const size_t found = text.find(from);
  if (found == std::string::npos) {
    return absl::StrCat("not in the campaign: ", from);
  }
  return text.substr(0, found) + to + text.substr(found + from.size());
}

// What is said of it; "" when nothing is.
inline std::string RefusalOf(const std::string& text,
                             const std::vector<std::string>& overrides = {}) {
  return std::string(ReadText(text, overrides).status().message());
}

}  // namespace lastflop
