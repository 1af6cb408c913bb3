#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"

namespace lastflop {

inline constexpr int64_t kMaxExchangeTopK = 32;  // A lane looks at one expert of a token.

// Whose tokens are exchanged. The batch's split is the host's; the routing is not.
struct TokenSplit {
  int64_t first_token[kMaxPeerRanks + 1] =
      {};  // Rank r's are [first_token[r], first_token[r + 1]).
  int num_ranks = 1;
  int64_t hidden_size = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;  // Rank r owns num_experts / num_ranks from r times that on.

  int64_t tokens_of(int rank) const { return first_token[rank + 1] - first_token[rank]; }
  int64_t all_tokens() const { return first_token[num_ranks]; }
  int64_t most_tokens() const;  // Of a rank.
};

// InvalidArgument: hidden_size that is not a multiple of 8, a top_k above 32, experts that do not
// divide over the ranks, more ranks than kMaxPeerRanks, tokens that are not ascending.
absl::Status CheckTokenSplit(const TokenSplit& split);

}  // namespace lastflop
