#include "step/make_step.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "step/layout.h"
#include "step/step_builder.h"
#include "step/work.h"

namespace lastflop {
namespace {

// The layers of a stage that run, and how many of the model each kind stands for.
struct KeptLayers {
  std::vector<int> layers;
  double moe_scale = 1;
  double dense_scale = 1;
};

KeptLayers KeepLayers(const Model& model, const Layout& layout, int64_t layers_kept) {
  KeptLayers kept;
  int64_t num_dense = 0;
  int64_t num_moe = 0;
  for (int layer = layout.first_layer; layer < layout.end_layer; ++layer) {
    const bool is_dense = model.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kDense;
    const int64_t index = is_dense ? num_dense++ : num_moe++;
    if (layers_kept == 0 || index < (is_dense ? 1 : layers_kept)) {
      kept.layers.push_back(layer);
    }
  }
  if (layers_kept == 0) {
    return kept;
  }
  if (num_moe > layers_kept) {
    kept.moe_scale = static_cast<double>(num_moe) / static_cast<double>(layers_kept);
  }
  kept.dense_scale = static_cast<double>(std::max<int64_t>(num_dense, 1));
  return kept;
}

// A layer that is built, and how many of the kept ones have ops like its own.
struct BuiltLayer {
  int layer = 0;
  int64_t num_layers = 1;
};

// Layers of a kind are alike, but for the model's first: nothing is before it whose output its
// norm would add.
std::vector<BuiltLayer> LayersToBuild(const Model& model, const KeptLayers& kept,
                                      bool distinct_only) {
  std::vector<BuiltLayer> built;
  for (const int layer : kept.layers) {
    const auto same = std::find_if(built.begin(), built.end(), [&](const BuiltLayer& other) {
      return other.layer > 0 && model.layer_kinds[static_cast<size_t>(other.layer)] ==
                                    model.layer_kinds[static_cast<size_t>(layer)];
    });
    if (distinct_only && same != built.end()) {
      ++same->num_layers;
    } else {
      built.push_back({.layer = layer});
    }
  }
  return built;
}

// Whether it works between the experts' ids and their summed output, or makes the ids.
bool IsOfExperts(const Op& op) {
  return op.category == OpCategory::kMoe || op.category == OpCategory::kDequant ||
         std::holds_alternative<RouterShape>(op.shape) ||
         std::holds_alternative<PermuteShape>(op.shape);
}

void KeepExpertsOnly(const ExpertLoad& load, Step& step) {
  std::erase_if(step.ops, [](const Op& op) { return !IsOfExperts(op); });
  for (Op& op : step.ops) {
    if (auto* combine = std::get_if<CombineShape>(&op.shape)) {
      combine->add_shared = false;
    } else if (auto* fused = std::get_if<FusedMoeShape>(&op.shape)) {
      fused->add_shared = false;
    }
    op.work = WorkOf(op.shape, load);
  }
  step.experts_only = true;
  step.input = Tensor::kNormed;
  step.output = Tensor::kHidden;
}

}  // namespace

absl::StatusOr<Step> MakeStep(const Model& model, const Plan& plan, const Point& point, int rank,
                              const StepOptions& options) {
  if (!options.is_checked) {
    LASTFLOP_RETURN_IF_ERROR(CheckFeasible(model, plan));
    LASTFLOP_RETURN_IF_ERROR(CheckPoint(model, plan, point));
  }
  if (rank < 0 || rank >= plan.num_ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank=", rank, " of a plan with ", plan.num_ranks(), " ranks"));
  }
  const Layout layout = MakeLayout(model, plan, rank);
  StepBuilder builder(model, plan, point, layout, options.load);
  const KeptLayers kept = KeepLayers(model, layout, options.layers_kept);
  const bool returns_tokens = layout.num_stages > 1 && point.phase == Phase::kDecode;
  if (layout.stage == 0) {
    if (returns_tokens) {
      builder.AddReceiveTokens();
    }
    builder.AddEmbedding();
  } else {
    builder.AddReceive();
  }
  for (const auto& [layer, num_layers] : LayersToBuild(model, kept, options.distinct_layers_only)) {
    builder.AddLayer(layer, num_layers);
  }
  if (layout.stage + 1 == layout.num_stages) {
    builder.AddHead();
    if (returns_tokens) {
      builder.AddSendTokens();
    }
  } else {
    builder.AddSend();
  }
  Step step;
  step.ops = builder.TakeOps();
  step.layers = kept.layers;
  step.moe_layer_scale = kept.moe_scale;
  step.dense_layer_scale = kept.dense_scale;
  step.num_tokens = builder.num_tokens();
  step.micro_batches = plan.parallel.micro_batches;
  step.tokens_per_step = TokensPerStep(plan, point);
  if (options.experts_only) {
    if (layout.data_attention) {
      return absl::InvalidArgumentError(
          "parallel.attention=data: experts alone have no all-to-all to bring their tokens");
    }
    KeepExpertsOnly(options.load, step);
  }
  return step;
}

double TokensPerStep(const Plan& plan, const Point& point) {
  if (point.phase == Phase::kPrefill) {
    return static_cast<double>(point.num_tokens());
  }
  // 1 + a + a^2 + ... + a^d: the geometric sum without its singularity at a = 1.
  double tokens = 0;
  double chance = 1;
  for (int64_t i = 0; i <= plan.speculative.draft_tokens; ++i) {
    tokens += chance;
    chance *= plan.speculative.acceptance;
  }
  return static_cast<double>(point.batch) * tokens;
}

}  // namespace lastflop
