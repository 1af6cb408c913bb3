#include "worker/cuda_draw.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/router/router_cuda.h"
#include "kernels/router/router_scores_cuda.h"
#include "step/routing.h"
#include "worker/token_ids.h"

namespace lastflop {

absl::StatusOr<std::unique_ptr<CudaDrawer>> CudaDrawer::Create(CudaStep& step, CudaContext& context,
                                                               uint64_t data_seed,
                                                               bool most_loaded) {
  std::unique_ptr<CudaDrawer> drawer(new CudaDrawer(step, context, data_seed, most_loaded));
  std::vector<int> layers;
  for (const int layer : step.step.layers) {
    if (step.model.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kMoe) {
      layers.push_back(layer);
    }
  }
  if (layers.empty()) {
    return drawer;
  }
  LASTFLOP_ASSIGN_OR_RETURN(drawer->scores_,
                            MakeRouterScorePlan(step.model, step.point.routing, std::move(layers)));
  const std::vector<std::byte>& tables = drawer->scores_.tables;
  LASTFLOP_ASSIGN_OR_RETURN(drawer->tables_, DeviceBuffer::Create(tables.size()));
  // On the stream that reads them: it does not wait for copies of the default stream.
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(drawer->tables_.data(), tables.data(), tables.size(), cudaMemcpyHostToDevice,
                      context.stream.get()),
      "copying routing tables");
  const int64_t group = step.model.num_experts / std::max<int64_t>(1, step.layout.expert_groups);
  LASTFLOP_ASSIGN_OR_RETURN(
      drawer->swap_,
      DeviceBuffer::Create(static_cast<size_t>(step.num_expert_tokens() * group) * sizeof(float)));
  return drawer;
}

absl::Status CudaDrawer::DrawRows(int64_t draw, Tensor tensor, int64_t num_rows) {
  std::vector<Bf16> rows(static_cast<size_t>(num_rows * step_.model.hidden_size));
  DrawActivations(data_seed_, draw, rows);
  return CudaStatus(
      cudaMemcpyAsync(step_.tensors.at(tensor)->data(), rows.data(), rows.size() * sizeof(Bf16),
                      cudaMemcpyHostToDevice, context_.stream.get()),
      "copying activations");
}

absl::Status CudaDrawer::DrawInput(int64_t draw) {
  if (step_.step.experts_only) {
    return DrawRows(draw, step_.step.input, step_.step.num_tokens);
  }
  if (step_.shard && step_.layout.data_attention && step_.num_moe_layers() > 0) {
    // In place of what a dispatch would bring.
    LASTFLOP_RETURN_IF_ERROR(DrawRows(draw, Tensor::kExpertInput, step_.num_expert_tokens()));
  }
  const int64_t first = step_.first_sequence() * QueryTokens(step_.plan, step_.point);
  const std::vector<int32_t> ids =
      DrawTokenIds(data_seed_, draw, first, step_.step.num_tokens, step_.model.vocab_size);
  // From pageable memory: the copy has left it when the call returns.
  return CudaStatus(
      cudaMemcpyAsync(step_.At<int32_t>(Tensor::kTokenIds), ids.data(),
                      ids.size() * sizeof(int32_t), cudaMemcpyHostToDevice, context_.stream.get()),
      "copying token ids");
}

absl::Status CudaDrawer::Route() {
  for (const CudaOp& op : step_.ops) {
    if (const auto* router = std::get_if<RouterShape>(&op.op->shape)) {
      const auto index = static_cast<size_t>(op.moe_index);
      const auto route = [&](RouterShape shape, int64_t num_tokens, const float* scores,
                             const CudaRouting& routing) {
        shape.num_tokens = num_tokens;
        return LaunchRouter(
            shape, scores, shape.router.has_bias ? step_.router_bias.As<float>() : nullptr,
            routing.expert_ids, routing.weights, step_.workspace->data(), context_.stream.get());
      };
      LASTFLOP_RETURN_IF_ERROR(route(*router, step_.step.num_tokens, step_.scores_of(op.moe_index),
                                     step_.routing[index]));
      if (step_.layout.data_attention) {
        LASTFLOP_RETURN_IF_ERROR(route(*router, step_.num_expert_tokens(),
                                       step_.all_scores_of(op.moe_index),
                                       step_.all_routing[index]));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<int32_t>>> CudaDrawer::ReadExperts(
    const std::vector<CudaRouting>& routings, int64_t num_tokens) {
  std::vector<std::vector<int32_t>> experts;
  const auto slots = static_cast<size_t>(num_tokens * step_.model.top_k);
  for (const CudaRouting& routing : routings) {
    std::vector<int32_t>& of_layer = experts.emplace_back(slots);
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(of_layer.data(), routing.expert_ids, slots * sizeof(int32_t),
                        cudaMemcpyDeviceToHost, context_.stream.get()),
        "reading the routing");
  }
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  return experts;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> CudaDrawer::ChosenExperts() {
  return ReadExperts(step_.routing, step_.step.num_tokens);
}

absl::StatusOr<std::vector<std::vector<int32_t>>> CudaDrawer::ExpertsOfAllTokens() {
  return step_.layout.data_attention ? ReadExperts(step_.all_routing, step_.num_expert_tokens())
                                     : ChosenExperts();
}

std::vector<std::vector<ExpertLoad>> CudaDrawer::LoadsOf(
    const std::vector<std::vector<int32_t>>& experts) const {
  std::vector<std::vector<ExpertLoad>> loads;
  for (const std::vector<int32_t>& of_layer : experts) {
    loads.push_back(LoadPerRank(step_.model, of_layer, step_.layout.expert_groups));
  }
  return loads;
}

// Exchanges the columns of the rank's own group of experts with those of `group_of_layer`.
absl::Status CudaDrawer::SwapGroups(const std::vector<int64_t>& group_of_layer) {
  const int64_t group_size = step_.model.num_experts / step_.layout.expert_groups;
  const auto pitch = static_cast<size_t>(step_.model.num_experts) * sizeof(float);
  const auto width = static_cast<size_t>(group_size) * sizeof(float);
  const auto rows = static_cast<size_t>(step_.num_expert_tokens());
  const auto copy = [&](void* to, size_t to_pitch, const void* from, size_t from_pitch) {
    return CudaStatus(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows,
                                        cudaMemcpyDeviceToDevice, context_.stream.get()),
                      "exchanging groups of experts");
  };
  for (size_t layer = 0; layer < group_of_layer.size(); ++layer) {
    if (group_of_layer[layer] == step_.layout.expert_group) {
      continue;
    }
    auto* const scores = const_cast<float*>(step_.all_scores_of(static_cast<int>(layer)));
    float* const own = scores + step_.layout.expert_group * group_size;
    float* const other = scores + group_of_layer[layer] * group_size;
    LASTFLOP_RETURN_IF_ERROR(copy(swap_.data(), width, other, pitch));
    LASTFLOP_RETURN_IF_ERROR(copy(other, pitch, own, pitch));
    LASTFLOP_RETURN_IF_ERROR(copy(own, pitch, swap_.data(), width));
  }
  return absl::OkStatus();
}

absl::StatusOr<RealisedRouting> CudaDrawer::Draw(int64_t draw) {
  LASTFLOP_RETURN_IF_ERROR(DrawInput(draw));
  RealisedRouting realised;
  if (step_.num_moe_layers() == 0) {
    LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
    return realised;
  }
  LASTFLOP_RETURN_IF_ERROR(LaunchRouterScores(scores_, tables_.data(), step_.num_expert_tokens(),
                                              draw, step_.router_scores.As<float>(),
                                              context_.stream.get()));
  LASTFLOP_RETURN_IF_ERROR(Route());
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> experts, ExpertsOfAllTokens());
  std::vector<std::vector<ExpertLoad>> loads = LoadsOf(experts);
  if (most_loaded_ && step_.layout.expert_groups > 1) {
    std::vector<int64_t> most_loaded;
    for (const std::vector<ExpertLoad>& of_layer : loads) {
      most_loaded.push_back(MostLoadedRank(of_layer));
    }
    LASTFLOP_RETURN_IF_ERROR(SwapGroups(most_loaded));
    LASTFLOP_RETURN_IF_ERROR(Route());
    LASTFLOP_ASSIGN_OR_RETURN(experts, ExpertsOfAllTokens());
    loads = LoadsOf(experts);
  }
  double imbalance = 0;
  for (const std::vector<ExpertLoad>& of_layer : loads) {
    double pairs = 0;
    double most_pairs = 0;
    for (const ExpertLoad& load : of_layer) {
      realised.unique_experts += load.unique_experts;
      pairs += load.pairs;
      most_pairs = std::max(most_pairs, load.pairs);
    }
    const auto groups = static_cast<double>(of_layer.size());
    imbalance += pairs > 0 ? most_pairs * groups / pairs : 1;
    realised.loads.push_back(of_layer[static_cast<size_t>(step_.layout.expert_group)]);
  }
  const auto num_layers = static_cast<double>(loads.size());
  realised.unique_experts /= num_layers;
  realised.imbalance = imbalance / num_layers;
  return realised;
}

}  // namespace lastflop
