#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "step/router_score_plan.h"
#include "step/routing.h"

namespace lastflop {
namespace {

// Standard Gumbel variates from 24 random bits.
class GumbelTable {
 public:
  GumbelTable() : values_(kGumbelCells + 1) {
    for (uint32_t cell = kGumbelTailCells; cell <= kGumbelCells - kGumbelTailCells; ++cell) {
      values_[cell] = Exact(static_cast<float>(cell) / kGumbelCells);
    }
  }

  float operator()(uint32_t bits) const {
    constexpr uint32_t kLowMask = (1U << kGumbelLowBits) - 1;
    const uint32_t cell = bits >> kGumbelLowBits;
    if (cell < kGumbelTailCells || cell >= kGumbelCells - kGumbelTailCells) {
      return Exact(GumbelUniform(bits));
    }
    const float share = static_cast<float>(bits & kLowMask) * (1.0F / (kLowMask + 1));
    return values_[cell] + share * (values_[cell + 1] - values_[cell]);
  }

  const std::vector<float>& values() const { return values_; }

 private:
  static float Exact(float uniform) { return -std::log(-std::log(uniform)); }

  std::vector<float> values_;
};

// A permutation of the experts that depends on seed and layer alone.
std::vector<int32_t> PermuteExperts(int64_t num_experts, uint64_t seed, int layer) {
  std::vector<int32_t> order(static_cast<size_t>(num_experts));
  std::iota(order.begin(), order.end(), 0);
  const uint64_t stream = RouterStream(kPermutationStream, layer, 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[CounterRandom(seed, stream, i) % i]);
  }
  return order;
}

absl::StatusOr<std::vector<double>> TraceRow(const Model& model, const Routing& routing,
                                             int layer) {
  const auto& rows = routing.trace_popularity;
  size_t row = 0;
  if (rows.size() == static_cast<size_t>(model.num_layers)) {
    row = static_cast<size_t>(layer);
  } else if (rows.size() == static_cast<size_t>(model.num_moe_layers())) {
    const auto end = model.layer_kinds.begin() + layer;
    row = static_cast<size_t>(std::count(model.layer_kinds.begin(), end, LayerKind::kMoe));
  } else if (rows.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace has ", rows.size(), " layers: the model has ", model.num_layers,
                     " of which ", model.num_moe_layers(), " are MoE"));
  }
  if (row >= rows.size() || rows[row].size() != static_cast<size_t>(model.num_experts)) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace has no ", model.num_experts, " expert counts for layer ", layer));
  }
  return rows[row];
}

// Log popularity of every expert; uniform is all zeros.
absl::StatusOr<std::vector<float>> LogPopularity(const Model& model, const Routing& routing,
                                                 int layer) {
  const auto num_experts = static_cast<size_t>(model.num_experts);
  std::vector<float> log_popularity(num_experts, 0.0F);
  if (routing.distribution == Distribution::kZipf) {
    const std::vector<int32_t> order = PermuteExperts(model.num_experts, routing.seed, layer);
    for (size_t r = 0; r < num_experts; ++r) {
      log_popularity[static_cast<size_t>(order[r])] =
          static_cast<float>(-routing.exponent * std::log(static_cast<double>(r + 1)));
    }
  } else if (routing.distribution == Distribution::kTrace) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> counts, TraceRow(model, routing, layer));
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    for (size_t e = 0; e < num_experts; ++e) {
      // An expert that the trace never saw is chosen when nothing else is left.
      const double share = std::max(counts[e] / std::max(total, 1.0), 1e-7);
      log_popularity[e] = static_cast<float>(std::log(share));
    }
  }
  return log_popularity;
}

// The experts that a token's keys choose under the rule that at most `top_k_groups` groups take
// part: best first, passing over groups once that many are in use.
std::vector<int32_t> ChooseWithinGroups(const Model& model, const float* keys) {
  const RouterDims& router = model.router;
  const auto is_worse = [keys](int32_t a, int32_t b) {
    return keys[a] < keys[b] || (keys[a] == keys[b] && a > b);
  };
  std::vector<int32_t> heap(static_cast<size_t>(model.num_experts));
  std::iota(heap.begin(), heap.end(), 0);
  std::make_heap(heap.begin(), heap.end(), is_worse);
  const int64_t group_size = model.num_experts / router.num_groups;
  std::vector<uint8_t> in_use(static_cast<size_t>(router.num_groups), 0);
  int64_t groups_left = router.top_k_groups;
  std::vector<int32_t> chosen;
  while (!heap.empty() && chosen.size() < static_cast<size_t>(model.top_k)) {
    std::pop_heap(heap.begin(), heap.end(), is_worse);
    const int32_t expert = heap.back();
    heap.pop_back();
    uint8_t& group_in_use = in_use[static_cast<size_t>(expert / group_size)];
    if (group_in_use == 0 && groups_left == 0) {
      continue;
    }
    groups_left -= group_in_use == 0 ? 1 : 0;
    group_in_use = 1;
    chosen.push_back(expert);
  }
  return chosen;
}

// Turns keys into scores under which the rule takes exactly `chosen`: they lie above all others,
// both keep the order of their keys.
void PlanToken(const std::vector<int32_t>& chosen, int64_t num_experts, float* keys) {
  const float highest = *std::max_element(keys, keys + num_experts);
  std::vector<float> of_chosen;
  for (const int32_t expert : chosen) {
    const float below = highest - keys[expert];
    of_chosen.push_back(-below / (1.0F + below));
  }
  for (int64_t e = 0; e < num_experts; ++e) {
    keys[e] = RouterScoreOnGrid(kUnchosenScore + 0.5F * (keys[e] - highest));
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    keys[chosen[i]] = RouterScoreOnGrid(of_chosen[i]);
  }
}

// Gumbel keys: log popularity plus noise, two variates a random word.
void DrawKeys(const std::vector<float>& log_popularity, uint64_t seed, int layer, int64_t draw,
              int64_t num_tokens, float* keys) {
  static const GumbelTable gumbel;  // Thousands of logarithms, the same each time.
  const size_t num_experts = log_popularity.size();
  const size_t words = (num_experts + 1) / 2;
  const uint64_t stream = RouterStream(kNoiseStream, layer, draw);
  for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
    float* row = keys + t * num_experts;
    for (size_t e = 0; e < num_experts; e += 2) {
      const uint64_t word = CounterRandom(seed, stream, t * words + e / 2);
      row[e] = log_popularity[e] + gumbel(static_cast<uint32_t>(word >> 40U));
      if (e + 1 < num_experts) {
        row[e + 1] = log_popularity[e + 1] + gumbel(static_cast<uint32_t>(word) >> 8U);
      }
    }
  }
}

// Popularity-weighted choice without replacement. Without groups the rule's own top-k realises it;
// with groups each token is planned.
void ScoreByKeys(const Model& model, int64_t num_tokens, float* keys) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    float* row = keys + t * model.num_experts;
    if (model.router.num_groups > 1) {
      PlanToken(ChooseWithinGroups(model, row), model.num_experts, row);
      continue;
    }
    // The best score is 0, where the scoring function is steep.
    const float highest = *std::max_element(row, row + model.num_experts);
    for (int64_t e = 0; e < model.num_experts; ++e) {
      row[e] = RouterScoreOnGrid(row[e] - highest);
    }
  }
}

int64_t PlaceOfSlot(int64_t slot, int64_t num_slots, int64_t num_places, uint64_t shift) {
  return UnwrappedPlaceOfSlot(slot, num_slots, num_places, shift) % num_places;
}

// The experts of each token under `balanced`: [num_tokens, top_k]. Slots t, t + T, t + 2T ... of a
// token lie num_places / slots-per-token apart, so that a token's experts differ.
std::vector<int32_t> BalancedExperts(const Model& model, uint64_t seed, int64_t num_tokens,
                                     int layer, int64_t draw) {
  const uint64_t stream = RouterStream(kShiftStream, layer, draw);
  // Slots fall on groups first, on the experts of a group second.
  const BalancedGroups groups = BalancedGroupsOf(model.router, model.top_k);
  const int64_t num_groups = groups.num_groups;
  const int64_t token_groups = groups.per_token;
  const int64_t per_group = groups.experts_per_group;
  const int64_t group_size = model.num_experts / num_groups;
  std::vector<std::vector<int64_t>> tokens_of_group(static_cast<size_t>(num_groups));
  for (int64_t j = 0; j < token_groups; ++j) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t group = PlaceOfSlot(t + j * num_tokens, num_tokens * token_groups, num_groups,
                                        CounterRandom(seed, stream, 0));
      tokens_of_group[static_cast<size_t>(group)].push_back(t);
    }
  }
  std::vector<int32_t> experts(static_cast<size_t>(num_tokens * model.top_k));
  std::vector<int64_t> num_filled(static_cast<size_t>(num_tokens), 0);
  for (int64_t group = 0; group < num_groups; ++group) {
    const auto& tokens = tokens_of_group[static_cast<size_t>(group)];
    const auto members = static_cast<int64_t>(tokens.size());
    const uint64_t shift = CounterRandom(seed, stream, static_cast<uint64_t>(group) + 1);
    for (int64_t i = 0; i < per_group; ++i) {
      for (int64_t u = 0; u < members; ++u) {
        const int64_t place = PlaceOfSlot(u + i * members, members * per_group, group_size, shift);
        const int64_t token = tokens[static_cast<size_t>(u)];
        int64_t& filled = num_filled[static_cast<size_t>(token)];
        experts[static_cast<size_t>(token * model.top_k + filled)] =
            static_cast<int32_t>(group * group_size + place);
        ++filled;
      }
    }
  }
  return experts;
}

// Scores under which every token takes its row of `experts`, with noise in how far.
void ScoreByPlan(const Model& model, const std::vector<int32_t>& experts, int64_t num_tokens,
                 float* keys) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    const auto begin = experts.begin() + t * model.top_k;
    PlanToken({begin, begin + model.top_k}, model.num_experts, keys + t * model.num_experts);
  }
}

// The experts of every token of a layer under all_to_one.
std::vector<int32_t> AllToOneExperts(const Model& model, uint64_t seed, int layer) {
  std::vector<float> places(static_cast<size_t>(model.num_experts));
  const auto order = PermuteExperts(model.num_experts, seed, layer);
  for (size_t i = 0; i < order.size(); ++i) {
    places[static_cast<size_t>(order[i])] = -static_cast<float>(i);
  }
  return ChooseWithinGroups(model, places.data());
}

absl::Status CheckGroups(const Model& model) {
  if (model.num_experts < 1 || model.router.num_groups < 1 ||
      model.num_experts % model.router.num_groups != 0 ||
      model.top_k > model.num_experts / model.router.num_groups *
                        std::min(model.router.top_k_groups, model.router.num_groups)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_experts=", model.num_experts, " in num_groups=", model.router.num_groups,
        ": top_k=", model.top_k, " does not fit into ", model.router.top_k_groups, " groups"));
  }
  return absl::OkStatus();
}

template <typename T>
void Append(const std::vector<T>& values, std::vector<std::byte>& tables) {
  static_assert(sizeof(T) == 4);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  tables.insert(tables.end(), bytes, bytes + 4 * values.size());
}

}  // namespace

absl::StatusOr<std::vector<float>> MakeRouterScores(const Model& model, const Routing& routing,
                                                    int64_t num_tokens, int layer, int64_t draw) {
  LASTFLOP_RETURN_IF_ERROR(CheckGroups(model));
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> log_popularity,
                            LogPopularity(model, routing, layer));
  std::vector<float> scores(static_cast<size_t>(num_tokens * model.num_experts));
  DrawKeys(log_popularity, routing.seed, layer, draw, num_tokens, scores.data());
  switch (routing.distribution) {
    case Distribution::kBalanced:
      ScoreByPlan(model, BalancedExperts(model, routing.seed, num_tokens, layer, draw), num_tokens,
                  scores.data());
      break;
    case Distribution::kAllToOne: {
      const std::vector<int32_t> chosen = AllToOneExperts(model, routing.seed, layer);
      for (int64_t t = 0; t < num_tokens; ++t) {
        PlanToken(chosen, model.num_experts, scores.data() + t * model.num_experts);
      }
      break;
    }
    case Distribution::kUniform:
    case Distribution::kZipf:
    case Distribution::kTrace:
      ScoreByKeys(model, num_tokens, scores.data());
      break;
  }
  return scores;
}

absl::StatusOr<RouterScorePlan> MakeRouterScorePlan(const Model& model, const Routing& routing,
                                                    std::vector<int> layers) {
  LASTFLOP_RETURN_IF_ERROR(CheckGroups(model));
  RouterScorePlan plan{.distribution = routing.distribution,
                       .seed = routing.seed,
                       .num_experts = model.num_experts,
                       .top_k = model.top_k,
                       .router = model.router,
                       .layers = std::move(layers)};
  Append(plan.layers, plan.tables);
  Append(GumbelTable().values(), plan.tables);
  for (const int layer : plan.layers) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> log_popularity,
                              LogPopularity(model, routing, layer));
    Append(log_popularity, plan.tables);
  }
  for (const int layer : plan.layers) {
    Append(AllToOneExperts(model, routing.seed, layer), plan.tables);
  }
  return plan;
}

}  // namespace lastflop
