#include <algorithm>
#include <cmath>
#include <vector>

#include "step/routing.h"

namespace lastflop {
namespace {

// The best `count` of `num` scores, best first; a lower index wins ties. `allowed` (null: all) says
// which take part; fewer than `count` give -1 at the end.
void TopK(const float* scores, const uint8_t* allowed, int64_t num, int64_t count,
          int32_t* expert_ids) {
  std::fill(expert_ids, expert_ids + count, -1);
  int64_t num_taken = 0;
  float least = -INFINITY;  // Of the taken ones, once there are `count`.
  for (int64_t e = 0; e < num; ++e) {
    const bool is_full = num_taken == count;
    if ((is_full && scores[e] <= least) || (allowed != nullptr && allowed[e] == 0)) {
      continue;
    }
    int64_t place = is_full ? count - 1 : num_taken++;
    for (; place > 0 && scores[expert_ids[place - 1]] < scores[e]; --place) {
      expert_ids[place] = expert_ids[place - 1];
    }
    expert_ids[place] = static_cast<int32_t>(e);
    least = scores[expert_ids[num_taken - 1]];
  }
}

// Value of a group for the grouped rule: the sum of its two best under sigmoid scoring with a
// correction bias (DeepSeek-V3), else its best (DeepSeek-V2).
float GroupValue(const Model& model, const float* scores, int64_t group_size) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int64_t e = 0; e < group_size; ++e) {
    if (scores[e] > first) {
      second = first;
      first = scores[e];
    } else {
      second = std::max(second, scores[e]);
    }
  }
  if (model.router.scoring != RouterScoring::kSigmoid || group_size < 2) {
    return first;
  }
  const auto sigmoid = [](float score) { return 1.0F / (1.0F + std::exp(-score)); };
  return sigmoid(first) + sigmoid(second);
}

// Marks the experts of the token's best groups; false when the rule has no groups and all may be
// chosen.
bool AllowGroups(const Model& model, const float* scores, std::vector<uint8_t>& allowed) {
  const int64_t num_groups = model.router.num_groups;
  if (num_groups <= 1 || model.router.top_k_groups >= num_groups) {
    return false;
  }
  const int64_t group_size = model.num_experts / num_groups;
  std::vector<float> values;
  for (int64_t g = 0; g < num_groups; ++g) {
    values.push_back(GroupValue(model, scores + g * group_size, group_size));
  }
  std::vector<int32_t> groups(static_cast<size_t>(model.router.top_k_groups));
  TopK(values.data(), nullptr, num_groups, model.router.top_k_groups, groups.data());
  std::fill(allowed.begin(), allowed.end(), uint8_t{0});
  for (const int32_t g : groups) {
    std::fill_n(allowed.begin() + g * group_size, group_size, uint8_t{1});
  }
  return true;
}

}  // namespace

std::vector<int32_t> ChooseExperts(const Model& model, const std::vector<float>& scores,
                                   int64_t num_tokens, int64_t opportunistic_keep) {
  std::vector<int32_t> experts(static_cast<size_t>(num_tokens * model.top_k));
  std::vector<uint8_t> allowed(static_cast<size_t>(model.num_experts));
  const auto choose = [&](int64_t t, const std::vector<uint8_t>* in_batch) {
    const float* row = scores.data() + t * model.num_experts;
    const uint8_t* taking_part = nullptr;
    if (AllowGroups(model, row, allowed)) {
      taking_part = allowed.data();
      for (size_t e = 0; in_batch != nullptr && e < allowed.size(); ++e) {
        allowed[e] = allowed[e] & (*in_batch)[e];
      }
    } else if (in_batch != nullptr) {
      taking_part = in_batch->data();
    }
    TopK(row, taking_part, model.num_experts, model.top_k, experts.data() + t * model.top_k);
  };
  for (int64_t t = 0; t < num_tokens; ++t) {
    choose(t, nullptr);
  }
  if (opportunistic_keep <= 0 || opportunistic_keep >= model.top_k) {
    return experts;
  }
  std::vector<uint8_t> in_batch(static_cast<size_t>(model.num_experts), 0);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < opportunistic_keep; ++k) {
      in_batch[static_cast<size_t>(experts[static_cast<size_t>(t * model.top_k + k)])] = 1;
    }
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    choose(t, &in_batch);
  }
  return experts;
}

}  // namespace lastflop
