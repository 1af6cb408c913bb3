// Inputs and routing of a draw on the CPU backend.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "step/layout.h"
#include "step/routing.h"
#include "worker/cpu_arm.h"
#include "worker/cpu_backend.h"
#include "worker/cpu_run_op.h"
#include "worker/token_ids.h"

namespace lastflop {
namespace {

// The model's layer whose routing the i-th kept MoE layer has in a pass: the next ones in turn.
int LayerOfPass(const Model& model, int64_t pass, size_t i, size_t num_kept) {
  std::vector<int> moe_layers;
  for (size_t layer = 0; layer < model.layer_kinds.size(); ++layer) {
    if (model.layer_kinds[layer] == LayerKind::kMoe) {
      moe_layers.push_back(static_cast<int>(layer));
    }
  }
  return moe_layers[(static_cast<size_t>(pass) * num_kept + i) % moe_layers.size()];
}

// The model's layers with experts that a step runs.
std::vector<int> MoeLayersOf(const Model& model, const Step& step) {
  std::vector<int> layers;
  std::copy_if(step.layers.begin(), step.layers.end(), std::back_inserter(layers), [&](int layer) {
    return model.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kMoe;
  });
  return layers;
}

struct RoutingSpread {
  double unique_experts = 0;  // Of all ranks.
  double imbalance = 1;       // Most loaded rank over the mean one.
};

RoutingSpread SpreadOf(const std::vector<ExpertLoad>& loads) {
  RoutingSpread spread;
  double pairs = 0;
  double most_pairs = 0;
  for (const ExpertLoad& load : loads) {
    spread.unique_experts += load.unique_experts;
    pairs += load.pairs;
    most_pairs = std::max(most_pairs, load.pairs);
  }
  if (pairs > 0) {
    spread.imbalance = most_pairs * static_cast<double>(loads.size()) / pairs;
  }
  return spread;
}

}  // namespace

absl::Status CpuArm::SetDraw(int64_t draw) {
  if (step_->is_idle()) {
    return absl::OkStatus();
  }
  const int64_t first_token = step_->first_sequence() * QueryTokens(step_->plan, step_->point);
  if (step_->step.experts_only) {
    DrawActivations(
        options_.data_seed, draw,
        step_->As<Bf16>(step_->step.input, step_->step.num_tokens * step_->model.hidden_size));
    LASTFLOP_RETURN_IF_ERROR(DrawRouting(draw));
    return Route();
  }
  LASTFLOP_RETURN_IF_ERROR(DrawRouting(draw));
  for (size_t i = scores_of_pass_.size(); is_pipeline() && i-- > 0;) {
    step_->SelectMicroBatch(static_cast<int64_t>(i));
    step_->drawn_scores = scores_of_pass_[i];
    step_->token_ids = DrawTokenIds(options_.data_seed, draw,
                                    first_token + static_cast<int64_t>(i) * step_->step.num_tokens,
                                    step_->step.num_tokens, step_->model.vocab_size);
  }
  if (!is_pipeline()) {
    step_->token_ids = DrawTokenIds(options_.data_seed, draw, first_token, step_->step.num_tokens,
                                    step_->model.vocab_size);
  }
  return absl::OkStatus();
}

// The experts that the drawn scores choose, for steps whose runs begin with them.
absl::Status CpuArm::Route() {
  for (CpuOp& op : step_->ops) {
    if (std::holds_alternative<RouterShape>(op.op->shape)) {
      LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, op));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuArm::DrawRouting(int64_t draw) {
  const Model& model = step_->model;
  const int64_t query_tokens = QueryTokens(step_->plan, step_->point);
  const int64_t all_tokens = step_->point.batch * query_tokens;
  const int64_t first_token = step_->first_sequence() * query_tokens;
  const int64_t groups = step_->layout.expert_groups;
  const size_t num_layers = step_->drawn_scores.size();
  double unique = 0;
  double imbalance = 0;
  loads_.assign(num_layers, ExpertLoad{});
  const auto num_passes = static_cast<int64_t>(scores_of_pass_.size());
  const std::vector<int> stage_layers = MoeLayersOf(model, step_->step);
  for (int64_t pass = 0; pass < num_passes; ++pass) {
    // A pass is a micro-batch of a pipeline, whose stages have layers of their own; else it stands
    // for other layers of the same tokens.
    const int64_t first_of_pass = first_token + (is_pipeline() ? pass * step_->step.num_tokens : 0);
    for (size_t i = 0; i < num_layers; ++i) {
      const int layer = is_pipeline() ? stage_layers[i] : LayerOfPass(model, pass, i, num_layers);
      LASTFLOP_ASSIGN_OR_RETURN(
          const std::vector<float> scores,
          MakeRouterScores(model, step_->point.routing, all_tokens, layer, draw));
      std::vector<float>& own = scores_of_pass_[static_cast<size_t>(pass)][i];
      const auto begin = scores.begin() + first_of_pass * model.num_experts;
      own.assign(begin, begin + step_->step.num_tokens * model.num_experts);
      // Independent replicas route their own tokens; else all tokens meet all experts.
      const int64_t keep = step_->plan.moe.opportunistic_keep;
      const auto loads_of = [&](const std::vector<float>& of, int64_t num_tokens) {
        return LoadPerRank(model, ChooseExperts(model, of, num_tokens, keep), groups);
      };
      std::vector<ExpertLoad> loads = step_->layout.data_attention
                                          ? loads_of(scores, all_tokens)
                                          : loads_of(own, step_->step.num_tokens);
      if (step_->step.experts_only && options_.most_loaded) {
        ExchangeGroups(model.num_experts, groups, step_->layout.expert_group, MostLoadedRank(loads),
                       own);
        loads = loads_of(own, step_->step.num_tokens);
      }
      const RoutingSpread spread = SpreadOf(loads);
      unique += spread.unique_experts;
      imbalance += spread.imbalance;
      const ExpertLoad& of_rank = loads[static_cast<size_t>(step_->layout.expert_group)];
      loads_[i].pairs += of_rank.pairs / static_cast<double>(num_passes);
      loads_[i].unique_experts += of_rank.unique_experts / static_cast<double>(num_passes);
    }
  }
  step_->drawn_scores = scores_of_pass_[0];
  const auto drawn = static_cast<double>(num_layers) * static_cast<double>(num_passes);
  unique_experts_ = drawn > 0 ? unique / drawn : 0;
  imbalance_ = drawn > 0 ? imbalance / drawn : 1;
  return absl::OkStatus();
}

}  // namespace lastflop
