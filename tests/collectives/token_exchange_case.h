#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/token_split.h"

namespace lastflop {

inline float ToFloat(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

enum class Routing { kUniform, kZipf, kAllToRankZero };

// One exchange: who has how many tokens, and what every rank can compute of all of them.
struct TokenExchangeCase {
  std::vector<int64_t> tokens;  // By rank.
  int64_t hidden_size = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  Routing routing = Routing::kUniform;
  bool has_shared = false;
  int seed = 0;

  TokenSplit split() const {
    TokenSplit split{.num_ranks = static_cast<int>(tokens.size()),
                     .hidden_size = hidden_size,
                     .top_k = top_k,
                     .num_experts = num_experts};
    for (size_t r = 0; r < tokens.size(); ++r) {
      split.first_token[r + 1] = split.first_token[r] + tokens[r];
    }
    return split;
  }
  int64_t experts_per_rank() const { return num_experts / static_cast<int64_t>(tokens.size()); }
  std::string name() const {
    return absl::StrCat(tokens[0], "+", tokens[1], " tokens of ", hidden_size, ", top ", top_k,
                        " of ", num_experts, ", routing ", static_cast<int>(routing), ": ");
  }

  std::vector<uint16_t> Values(int what, int64_t count) const {
    std::mt19937 random(static_cast<unsigned>(seed * 100 + what));
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) {
      value = ToBf16(static_cast<float>(random() % 20001) / 1000.0F - 10.0F);
    }
    return values;
  }
  // Of all tokens, in order of the batch.
  std::vector<uint16_t> Rows() const { return Values(1, split().all_tokens() * hidden_size); }
  std::vector<uint16_t> Shared() const { return Values(2, split().all_tokens() * hidden_size); }
  std::vector<uint16_t> PartialOf(int rank) const {
    return Values(10 + rank, split().all_tokens() * hidden_size);
  }
  std::vector<int32_t> Ids() const {
    std::mt19937 random(static_cast<unsigned>(seed + 7));
    const int64_t most = routing == Routing::kAllToRankZero ? experts_per_rank() : num_experts;
    std::vector<double> popularity;
    for (int64_t e = 0; e < most; ++e) {
      popularity.push_back(routing == Routing::kZipf ? 1.0 / static_cast<double>(e + 1) : 1.0);
    }
    std::vector<int32_t> ids;
    for (int64_t token = 0; token < split().all_tokens(); ++token) {
      std::vector<double> left = popularity;
      for (int64_t k = 0; k < top_k; ++k) {
        std::discrete_distribution<int32_t> choose(left.begin(), left.end());
        ids.push_back(choose(random));
        left[static_cast<size_t>(ids.back())] = 0;
      }
      if (token % 5 == 4) {
        ids.back() = -1;  // A token with fewer experts.
      }
    }
    return ids;
  }
  std::vector<float> Weights() const {
    std::vector<float> weights;
    for (const uint16_t value : Values(3, split().all_tokens() * top_k)) {
      weights.push_back(ToFloat(value));
    }
    return weights;
  }
  bool Goes(const std::vector<int32_t>& ids, int64_t token, int rank) const {
    const auto begin = ids.begin() + token * top_k;
    return std::any_of(begin, begin + top_k,
                       [&](int32_t id) { return id >= 0 && id / experts_per_rank() == rank; });
  }
};

}  // namespace lastflop
