#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/model.h"
#include "common/random.h"

namespace lastflop {

// Streams of the counter-based generator, so that permutation, noise and shifts are independent.
inline constexpr uint64_t kPermutationStream = 0x7065726D;
inline constexpr uint64_t kNoiseStream = 0x6E6F6973;
inline constexpr uint64_t kShiftStream = 0x73686966;

LASTFLOP_HOST_DEVICE constexpr uint64_t RouterStream(uint64_t base, int layer, int64_t draw) {
  return base + (static_cast<uint64_t>(layer) << 40U) + static_cast<uint64_t>(draw) * 0x10001U;
}

// Gumbel variates come from 24 random bits: the quantile -log(-log(u)) from a table of so many
// cells, linear between its entries, but exact in the tails, so many cells, where it bends.
inline constexpr uint32_t kGumbelCells = 4096;
inline constexpr uint32_t kGumbelTailCells = 64;
inline constexpr uint32_t kGumbelLowBits = 12;  // Of 24, those within a cell.

// The u of the tails: never 1, whose quantile is infinite.
LASTFLOP_HOST_DEVICE constexpr float GumbelUniform(uint32_t bits) {
  const float uniform = (static_cast<float>(bits) + 0.5F) * 0x1.0p-24F;
  return uniform < 1.0F ? uniform : 0x1.FFFFFEp-1F;
}

// Chosen experts of a planned token score in (-1, 0], the others at most this: sigmoid and softmax
// then put any group with a chosen expert above every group without one.
inline constexpr float kUnchosenScore = -5.0F;

// Rounds a score, which is at most 0, to the grid on which scores lie: the scoring function keeps
// neighbours apart in fp32, and equal scores are equal for every implementation, which then takes
// the lower index. (std::round is a call without SSE4.1.)
LASTFLOP_HOST_DEVICE constexpr float RouterScoreOnGrid(float score) {
  constexpr float kScoreStep = 1.0F / 4096;
  constexpr float kLowestScore = -30.0F;
  const float kept = score > kLowestScore ? score : kLowestScore;
  const auto steps = static_cast<int32_t>(kept / kScoreStep - 0.5F);
  return static_cast<float>(steps) * kScoreStep;
}

// Slots of a `balanced` draw, `num_slots` spread evenly over `num_places`: a place gets floor or
// ceil of num_slots / num_places of them, and so does every run of places. Place of `slot` before
// it is wrapped (modulo num_places); it grows with the slot.
LASTFLOP_HOST_DEVICE constexpr int64_t UnwrappedPlaceOfSlot(int64_t slot, int64_t num_slots,
                                                            int64_t num_places, uint64_t shift) {
  const uint64_t offset = shift % static_cast<uint64_t>(num_slots * num_places);
  return (slot * num_places + static_cast<int64_t>(offset)) / num_slots;
}

// Groups that each token uses under `balanced`, and experts that it takes of each of them: the
// groups divide top_k.
struct BalancedGroups {
  int64_t num_groups = 1;
  int64_t per_token = 1;
  int64_t experts_per_group = 1;
};
LASTFLOP_HOST_DEVICE constexpr BalancedGroups BalancedGroupsOf(const RouterDims& router,
                                                               int64_t top_k) {
  BalancedGroups groups{.experts_per_group = top_k};
  if (router.num_groups > 1) {
    groups.num_groups = router.num_groups;
    groups.per_token = router.top_k_groups < top_k ? router.top_k_groups : top_k;
    while (top_k % groups.per_token != 0) {
      --groups.per_token;
    }
    groups.experts_per_group = top_k / groups.per_token;
  }
  return groups;
}

// What MakeRouterScores() needs of a model and a routing that does not depend on the draw, in the
// form in which a device takes it: `tables` is copied there once and holds, 4 bytes each
//
//   layers         [num_layers]  the model's layer numbers
//   gumbel         [4097]        quantiles of the standard Gumbel distribution, tails unused
//   log_popularity [num_layers, num_experts]
//   chosen         [num_layers, top_k]  all_to_one: every token's experts
struct RouterScorePlan {
  static constexpr int64_t kGumbelEntries = kGumbelCells + 1;

  Distribution distribution = Distribution::kUniform;
  uint64_t seed = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  RouterDims router;
  std::vector<int> layers;
  std::vector<std::byte> tables;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t gumbel_offset() const { return 4 * num_layers(); }
  int64_t log_popularity_offset() const { return gumbel_offset() + 4 * kGumbelEntries; }
  int64_t chosen_offset() const { return log_popularity_offset() + 4 * num_layers() * num_experts; }
};

// A plan for the given layers of the model. Errors as MakeRouterScores().
absl::StatusOr<RouterScorePlan> MakeRouterScorePlan(const Model& model, const Routing& routing,
                                                    std::vector<int> layers);

}  // namespace lastflop
