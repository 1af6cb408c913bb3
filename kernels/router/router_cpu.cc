#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/router/router.h"
#include "kernels/router/router_builds.h"

namespace lastflop {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxTopK = 64;
constexpr int64_t kMaxGroups = 64;

float ExpSum(const float* in, int64_t count, float max, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    return ExpSumAvx2(in, count, max);
  }
#endif
  static_cast<void>(isa);
  return ExpSumPortable(in, count, max);
}

void Sigmoid(const float* in, int64_t count, float* out, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    SigmoidAvx2(in, count, out);
    return;
  }
#endif
  static_cast<void>(isa);
  SigmoidPortable(in, count, out);
}

// The best `count` of `values` above -infinity, best first, a lower index before an equal one;
// returns how many there are. Most values lose against the worst that is kept at once.
int64_t TopK(const float* values, int64_t num_values, int64_t count, int32_t* best) {
  int64_t kept = 0;
  float least = kNever;
  for (int64_t i = 0; i < num_values; ++i) {
    if (!(values[i] > least)) {
      continue;
    }
    int64_t place = kept < count ? kept++ : count - 1;
    for (; place > 0 && values[best[place - 1]] < values[i]; --place) {
      best[place] = best[place - 1];
    }
    best[place] = static_cast<int32_t>(i);
    least = kept < count ? kNever : values[best[count - 1]];
  }
  return kept;
}

// One call. A thread works on one token at a time in its scratch: values by which it chooses, and
// sigmoids.
class RouterCall {
 public:
  RouterCall(const RouterShape& shape, std::span<const float> scores, std::span<const float> bias,
             VectorIsa isa)
      : shape_(shape), scores_(scores.data()), bias_(bias.data()), isa_(isa) {}

  const float* Scores(int64_t token) const { return scores_ + token * shape_.num_experts; }
  float* Plain(std::byte* scratch) const { return reinterpret_cast<float*>(scratch) + kMaxExperts; }

  // Writes the token's values to the scratch.
  float* MakeValues(int64_t token, std::byte* scratch) const {
    auto* const values = reinterpret_cast<float*>(scratch);
    const float* const scores = Scores(token);
    const auto bytes = static_cast<size_t>(shape_.num_experts) * sizeof(float);
    if (shape_.router.scoring == RouterScoring::kSigmoid) {
      Sigmoid(scores, shape_.num_experts, Plain(scratch), isa_);
      std::memcpy(values, Plain(scratch), bytes);
    } else {
      std::memcpy(values, scores, bytes);
    }
    if (shape_.router.has_bias) {
      AddBias(scores, values);
    }
    if (shape_.router.num_groups > 1 && shape_.router.top_k_groups < shape_.router.num_groups) {
      KeepBestGroups(values);
    }
    return values;
  }

  // Writes experts and weights of a token; `values` and `plain` are as MakeValues left them.
  void Choose(int64_t token, const float* values, const float* plain, int32_t* expert_ids,
              float* weights) const {
    const int64_t count = TopK(values, shape_.num_experts, shape_.top_k, expert_ids);
    std::fill(expert_ids + count, expert_ids + shape_.top_k, -1);
    std::fill(weights + count, weights + shape_.top_k, 0.0f);
    const float* const scores = Scores(token);
    const bool divides = shape_.router.renormalize || shape_.router.softmax_after_top_k;
    float divisor = 1;
    if (shape_.router.scoring == RouterScoring::kSigmoid) {
      float sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        weights[k] = plain[expert_ids[k]];
        sum += weights[k];
      }
      divisor = divides ? sum : 1;
    } else if (count > 0) {
      // The sum over all experts cancels where the chosen are divided by their own sum.
      const float max = *std::max_element(scores, scores + shape_.num_experts);
      float sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        weights[k] = std::exp(scores[expert_ids[k]] - max);
        sum += weights[k];
      }
      divisor = divides ? sum : ExpSum(scores, shape_.num_experts, max, isa_);
    }
    const float factor = static_cast<float>(shape_.router.scaling_factor) / divisor;
    for (int64_t k = 0; k < count; ++k) {
      weights[k] *= factor;
    }
  }

 private:
  void AddBias(const float* scores, float* values) const {
    if (shape_.router.scoring == RouterScoring::kSoftmax) {
      const float max = *std::max_element(scores, scores + shape_.num_experts);
      const float inverse = 1.0f / ExpSum(scores, shape_.num_experts, max, isa_);
      for (int64_t e = 0; e < shape_.num_experts; ++e) {
        values[e] = std::exp(scores[e] - max) * inverse;
      }
    }
    for (int64_t e = 0; e < shape_.num_experts; ++e) {
      values[e] += bias_[e];
    }
  }

  void KeepBestGroups(float* values) const {
    const int64_t num_groups = shape_.router.num_groups;
    const int64_t size = shape_.num_experts / num_groups;
    const bool sums_two = shape_.router.scoring == RouterScoring::kSigmoid && size > 1;
    float worth[kMaxGroups] = {};
    for (int64_t g = 0; g < num_groups; ++g) {
      int32_t best[2] = {};
      const int64_t count = TopK(values + g * size, size, sums_two ? 2 : 1, best);
      worth[g] = count > 0 ? values[g * size + best[0]] : kNever;
      worth[g] += count > 1 ? values[g * size + best[1]] : 0.0f;
    }
    int32_t groups[kMaxGroups] = {};
    const int64_t num_kept = TopK(worth, num_groups, shape_.router.top_k_groups, groups);
    bool is_kept[kMaxGroups] = {};
    for (int64_t g = 0; g < num_kept; ++g) {
      is_kept[groups[g]] = true;
    }
    for (int64_t g = 0; g < num_groups; ++g) {
      if (!is_kept[g]) {
        std::fill_n(values + g * size, size, kNever);
      }
    }
  }

  const RouterShape& shape_;
  const float* const scores_;
  const float* const bias_;
  const VectorIsa isa_;
};

}  // namespace

absl::Status ValidateRouter(const RouterShape& shape) {
  const RouterDims& router = shape.router;
  if (shape.num_tokens < 0 || shape.num_experts < 1 || shape.num_experts > kMaxExperts ||
      shape.top_k < 1 || shape.top_k > std::min(kMaxTopK, shape.num_experts) ||
      shape.opportunistic_keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "router: num_tokens=", shape.num_tokens, " num_experts=", shape.num_experts,
        " top_k=", shape.top_k, " opportunistic_keep=", shape.opportunistic_keep,
        ": experts are 1 to ", kMaxExperts, ", top_k 1 to ", kMaxTopK, " and at most the experts"));
  }
  if (router.num_groups < 1 || router.num_groups > kMaxGroups || router.top_k_groups < 1 ||
      router.top_k_groups > router.num_groups || shape.num_experts % router.num_groups != 0 ||
      router.top_k_groups * (shape.num_experts / router.num_groups) < shape.top_k) {
    return absl::InvalidArgumentError(
        absl::StrCat("router: ", router.top_k_groups, " of ", router.num_groups, " groups of ",
                     shape.num_experts, " experts for top_k=", shape.top_k, ": groups are 1 to ",
                     kMaxGroups, ", divide the experts, and those that take part hold top_k"));
  }
  return absl::OkStatus();
}

void Router(const RouterShape& shape, std::span<const float> scores, std::span<const float> bias,
            std::span<int32_t> expert_ids, std::span<float> weights, ThreadPool& pool) {
  const RouterCall call(shape, scores, bias, pool.isa());
  const bool is_limited = shape.opportunistic_keep > 0 && shape.opportunistic_keep < shape.top_k;
  // Several threads set the same flags to 1.
  std::atomic<uint8_t> in_batch[kMaxExperts];
  for (int64_t e = 0; is_limited && e < shape.num_experts; ++e) {
    in_batch[e].store(0, std::memory_order_relaxed);
  }
  pool.RunOnAll([&](int thread) {
    std::byte* const scratch = pool.Scratch(thread);
    if (is_limited) {
      for (int64_t t = pool.NextTask(0); t < shape.num_tokens; t = pool.NextTask(0)) {
        int32_t best[kMaxTopK];
        const int64_t count =
            TopK(call.MakeValues(t, scratch), shape.num_experts, shape.opportunistic_keep, best);
        for (int64_t k = 0; k < count; ++k) {
          in_batch[best[k]].store(1, std::memory_order_relaxed);
        }
      }
      pool.Barrier();
    }
    for (int64_t t = pool.NextTask(1); t < shape.num_tokens; t = pool.NextTask(1)) {
      float* const values = call.MakeValues(t, scratch);
      for (int64_t e = 0; is_limited && e < shape.num_experts; ++e) {
        values[e] = in_batch[e].load(std::memory_order_relaxed) != 0 ? values[e] : kNever;
      }
      call.Choose(t, values, call.Plain(scratch), expert_ids.data() + t * shape.top_k,
                  weights.data() + t * shape.top_k);
    }
  });
}

float ExpSumPortable(const float* in, int64_t count, float max) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += std::exp(in[i] - max);
  }
  return sum;
}

void SigmoidPortable(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = 1.0f / (1.0f + std::exp(-in[i]));
  }
}

}  // namespace lastflop
