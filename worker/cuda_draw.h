#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device_buffer.h"
#include "step/make_step.h"
#include "step/router_score_plan.h"
#include "worker/cuda_step.h"

namespace lastflop {

// What the routing of a draw came to.
struct RealisedRouting {
  std::vector<ExpertLoad> loads;  // Of this rank, by moe_index.
  double unique_experts = 0;      // Over all ranks, mean over layers.
  double imbalance = 1;           // Most loaded rank's pairs over the mean, mean over layers.
};

// Makes inputs and routing of draws on the device.
class CudaDrawer {
 public:
  // Copies what does not depend on the draw there. `step` and `context` outlive the drawer. With
  // `most_loaded` each layer's most loaded group of experts takes the place of the rank's own.
  static absl::StatusOr<std::unique_ptr<CudaDrawer>> Create(CudaStep& step, CudaContext& context,
                                                            uint64_t data_seed, bool most_loaded);

  // Token ids (of experts alone: activations) and router scores of `draw`, and what they route.
  // Waits for the device.
  absl::StatusOr<RealisedRouting> Draw(int64_t draw);

  // Experts by layer, [num_tokens, top_k] each, of the last run.
  absl::StatusOr<std::vector<std::vector<int32_t>>> ChosenExperts();

  // Of the draw, those of all tokens that experts of this rank may see: under data attention all
  // ranks'.
  absl::StatusOr<std::vector<std::vector<int32_t>>> ExpertsOfAllTokens();

 private:
  CudaDrawer(CudaStep& step, CudaContext& context, uint64_t data_seed, bool most_loaded)
      : step_(step), context_(context), data_seed_(data_seed), most_loaded_(most_loaded) {}

  absl::Status DrawInput(int64_t draw);
  absl::Status DrawRows(int64_t draw, Tensor tensor, int64_t num_rows);
  absl::Status Route();
  absl::StatusOr<std::vector<std::vector<int32_t>>> ReadExperts(
      const std::vector<CudaRouting>& routings, int64_t num_tokens);
  absl::Status SwapGroups(const std::vector<int64_t>& group_of_layer);
  std::vector<std::vector<ExpertLoad>> LoadsOf(
      const std::vector<std::vector<int32_t>>& experts) const;

  CudaStep& step_;
  CudaContext& context_;
  const uint64_t data_seed_;
  const bool most_loaded_;
  RouterScorePlan scores_;
  DeviceBuffer tables_;
  DeviceBuffer swap_;  // Scores of one group of a layer.
};

}  // namespace lastflop
