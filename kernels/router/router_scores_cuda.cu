#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/router/router_scores_cuda.h"

namespace lastflop {
namespace {

constexpr int kMaxTopK = 64;

struct ScoresArguments {
  Distribution distribution;
  uint64_t seed;
  int64_t draw;
  int num_layers;
  int64_t num_tokens;
  int num_experts;
  int top_k;
  RouterDims router;
  const int32_t* layers;
  const float* gumbel;
  const float* log_popularity;
  const int32_t* chosen;
  float* scores;
};

// Operations by their rounding: no contraction, as on the host.
__device__ float Gumbel(const float* table, uint32_t bits) {
  constexpr uint32_t kLowMask = (1u << kGumbelLowBits) - 1;
  const uint32_t cell = bits >> kGumbelLowBits;
  if (cell < kGumbelTailCells || cell >= kGumbelCells - kGumbelTailCells) {
    return -logf(-logf(GumbelUniform(bits)));
  }
  const float share = static_cast<float>(bits & kLowMask) * (1.0f / (kLowMask + 1));
  return __fadd_rn(table[cell], __fmul_rn(share, table[cell + 1] - table[cell]));
}

__device__ void DrawKeys(const ScoresArguments& a, int layer_index, int64_t token, float* keys,
                         int lane) {
  const int words = (a.num_experts + 1) / 2;
  const uint64_t stream = RouterStream(kNoiseStream, a.layers[layer_index], a.draw);
  const float* const popularity =
      a.log_popularity + static_cast<int64_t>(layer_index) * a.num_experts;
  for (int w = lane; w < words; w += 32) {
    const uint64_t word = CounterRandom(a.seed, stream, static_cast<uint64_t>(token * words + w));
    const int e = 2 * w;
    keys[e] = popularity[e] + Gumbel(a.gumbel, static_cast<uint32_t>(word >> 40));
    if (e + 1 < a.num_experts) {
      keys[e + 1] = popularity[e + 1] + Gumbel(a.gumbel, static_cast<uint32_t>(word) >> 8);
    }
  }
  __syncwarp();
}

// The best experts by key where at most top_k_groups groups take part: best first, passing over
// groups once that many are in use. Keys stay as they are; `chosen` is shared memory.
__device__ void ChooseWithinGroups(const ScoresArguments& a, const float* keys, int* chosen,
                                   int lane) {
  const int size = a.num_experts / static_cast<int>(a.router.num_groups);
  uint64_t in_use = 0;
  int groups_left = static_cast<int>(a.router.top_k_groups);
  for (int i = 0; i < a.top_k; ++i) {
    uint32_t best = 0;
    uint32_t index = 0xFFFFFFFFu;
    for (int e = lane; e < a.num_experts; e += 32) {
      const bool may = groups_left > 0 || (in_use >> (e / size) & 1) != 0;
      bool is_taken = false;
      for (int j = 0; j < i; ++j) {
        is_taken = is_taken || chosen[j] == e;
      }
      const uint32_t key = OrderedKey(keys[e]);
      if (may && !is_taken && key > best) {
        best = key;
        index = static_cast<uint32_t>(e);
      }
    }
    const uint32_t top = __reduce_max_sync(kAllLanes, best);
    const uint32_t expert = __reduce_min_sync(kAllLanes, best == top ? index : 0xFFFFFFFFu);
    const uint64_t group = uint64_t{1} << (expert / size);
    groups_left -= (in_use & group) == 0 ? 1 : 0;
    in_use |= group;
    if (lane == 0) {
      chosen[i] = static_cast<int>(expert);
    }
    __syncwarp();
  }
}

// First slot whose unwrapped place is at least `place`.
__device__ int64_t FirstSlotOf(int64_t place, int64_t num_slots, int64_t num_places,
                               int64_t offset) {
  const int64_t first = (place * num_slots - offset + num_places - 1) / num_places;
  return max(int64_t{0}, min(first, num_slots));
}

// Expert number `i` of a token under `balanced`: BalancedExperts() of step/router_scores.cc without
// its lists. Slots of a group are a run, or, where places wrap, a run at either end.
__device__ int BalancedExpert(const ScoresArguments& a, int layer, int64_t token, int i) {
  const uint64_t stream = RouterStream(kShiftStream, layer, a.draw);
  const BalancedGroups groups = BalancedGroupsOf(a.router, a.top_k);
  const int64_t num_slots = a.num_tokens * groups.per_token;
  const int64_t slot = token + i / groups.experts_per_group * a.num_tokens;
  const uint64_t shift = CounterRandom(a.seed, stream, 0);
  const auto offset =
      static_cast<int64_t>(shift % static_cast<uint64_t>(num_slots * groups.num_groups));
  const auto first_of = [&](int64_t place) {
    return FirstSlotOf(place, num_slots, groups.num_groups, offset);
  };
  const int64_t place = UnwrappedPlaceOfSlot(slot, num_slots, groups.num_groups, shift);
  const int64_t lowest = offset / num_slots;
  const int64_t wrapped = lowest + groups.num_groups;  // The lowest place's group again.
  int64_t before = slot - first_of(place);             // Slots of the group before this one.
  int64_t members = first_of(place + 1) - first_of(place);
  if (place == lowest || place == wrapped) {
    const int64_t early = first_of(lowest + 1);
    const int64_t late = first_of(wrapped);
    before = place == lowest ? slot : early + slot - late;
    members = early + num_slots - late;
  }
  const int64_t group = place % groups.num_groups;
  const int64_t size = a.num_experts / groups.num_groups;
  const uint64_t group_shift = CounterRandom(a.seed, stream, static_cast<uint64_t>(group) + 1);
  const int64_t in_group =
      UnwrappedPlaceOfSlot(before + i % groups.experts_per_group * members,
                           members * groups.experts_per_group, size, group_shift) %
      size;
  return static_cast<int>(group * size + in_group);
}

// Scores under which the rule takes exactly `chosen`: PlanToken() of step/router_scores.cc.
__device__ void WritePlanned(const ScoresArguments& a, const float* keys, const int* chosen,
                             float highest, float* out, int lane) {
  for (int e = lane; e < a.num_experts; e += 32) {
    out[e] = RouterScoreOnGrid(kUnchosenScore + 0.5f * (keys[e] - highest));
  }
  __syncwarp();
  for (int i = lane; i < a.top_k; i += 32) {
    const float below = highest - keys[chosen[i]];
    out[chosen[i]] = RouterScoreOnGrid(-below / (1.0f + below));
  }
}

// A warp a token of a layer.
__global__ void RouterScoresKernel(ScoresArguments a) {
  extern __shared__ float all_keys[];
  __shared__ int all_chosen[8][kMaxTopK];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (row >= a.num_layers * a.num_tokens) {
    return;
  }
  const auto layer_index = static_cast<int>(row / a.num_tokens);
  const int64_t token = row % a.num_tokens;
  float* const keys = all_keys + warp * a.num_experts;
  int* const chosen = all_chosen[warp];
  float* const out = a.scores + row * a.num_experts;
  DrawKeys(a, layer_index, token, keys, lane);
  float highest = -INFINITY;
  for (int e = lane; e < a.num_experts; e += 32) {
    highest = fmaxf(highest, keys[e]);
  }
  highest = WarpMax(highest);
  switch (a.distribution) {
    case Distribution::kBalanced:
      for (int i = lane; i < a.top_k; i += 32) {
        chosen[i] = BalancedExpert(a, a.layers[layer_index], token, i);
      }
      break;
    case Distribution::kAllToOne:
      for (int i = lane; i < a.top_k; i += 32) {
        chosen[i] = a.chosen[static_cast<int64_t>(layer_index) * a.top_k + i];
      }
      break;
    default:  // uniform, zipf, trace: by the keys.
      if (a.router.num_groups == 1) {
        // The best score is 0, where the scoring function is steep.
        for (int e = lane; e < a.num_experts; e += 32) {
          out[e] = RouterScoreOnGrid(keys[e] - highest);
        }
        return;
      }
      ChooseWithinGroups(a, keys, chosen, lane);
      break;
  }
  __syncwarp();
  WritePlanned(a, keys, chosen, highest, out, lane);
}

}  // namespace

absl::Status LaunchRouterScores(const RouterScorePlan& plan, const void* tables, int64_t num_tokens,
                                int64_t draw, float* scores, cudaStream_t stream) {
  constexpr int64_t kMaxExperts = 4096;
  constexpr int64_t kMaxGroups = 64;
  if (num_tokens < 0 || plan.num_experts < 1 || plan.num_experts > kMaxExperts || plan.top_k < 1 ||
      plan.top_k > kMaxTopK || plan.router.num_groups < 1 || plan.router.num_groups > kMaxGroups) {
    return absl::InvalidArgumentError(absl::StrCat(
        "router scores: num_tokens=", num_tokens, " num_experts=", plan.num_experts,
        " top_k=", plan.top_k, " num_groups=", plan.router.num_groups, ": experts are 1 to ",
        kMaxExperts, ", top_k 1 to ", kMaxTopK, ", groups 1 to ", kMaxGroups));
  }
  const int64_t rows = plan.num_layers() * num_tokens;
  if (rows == 0) {
    return absl::OkStatus();
  }
  const auto* const bytes = static_cast<const std::byte*>(tables);
  const ScoresArguments arguments{
      .distribution = plan.distribution,
      .seed = plan.seed,
      .draw = draw,
      .num_layers = static_cast<int>(plan.num_layers()),
      .num_tokens = num_tokens,
      .num_experts = static_cast<int>(plan.num_experts),
      .top_k = static_cast<int>(plan.top_k),
      .router = plan.router,
      .layers = reinterpret_cast<const int32_t*>(bytes),
      .gumbel = reinterpret_cast<const float*>(bytes + plan.gumbel_offset()),
      .log_popularity = reinterpret_cast<const float*>(bytes + plan.log_popularity_offset()),
      .chosen = reinterpret_cast<const int32_t*>(bytes + plan.chosen_offset()),
      .scores = scores};
  const int warps = plan.num_experts <= 1024 ? 8 : 2;
  const size_t shared_bytes = static_cast<size_t>(warps * plan.num_experts) * sizeof(float);
  RouterScoresKernel<<<static_cast<unsigned>((rows + warps - 1) / warps), 32 * warps, shared_bytes,
                       stream>>>(arguments);
  return LastLaunchStatus("router scores");
}

}  // namespace lastflop
