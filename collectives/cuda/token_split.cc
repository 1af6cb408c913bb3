#include "collectives/cuda/token_split.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lastflop {

int64_t TokenSplit::most_tokens() const {
  int64_t most = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    most = std::max(most, tokens_of(rank));
  }
  return most;
}

absl::Status CheckTokenSplit(const TokenSplit& split) {
  if (split.num_ranks < 1 || split.num_ranks > kMaxPeerRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of tokens over ", split.num_ranks, " ranks: 1 to ", kMaxPeerRanks));
  }
  if (split.hidden_size < 8 || split.hidden_size % 8 != 0 || split.top_k < 1 ||
      split.top_k > kMaxExchangeTopK || split.num_experts < 1 ||
      split.num_experts % split.num_ranks != 0 || split.num_experts >= INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "exchange of tokens of hidden_size=", split.hidden_size, " top_k=", split.top_k,
        " num_experts=", split.num_experts, " over ", split.num_ranks,
        " ranks: a multiple of 8, up to ", kMaxExchangeTopK, ", a multiple of the ranks"));
  }
  for (int rank = 0; rank < split.num_ranks; ++rank) {
    if (split.first_token[0] != 0 || split.tokens_of(rank) < 0) {
      return absl::InvalidArgumentError(absl::StrCat("exchange of tokens: rank ", rank, " has ",
                                                     split.tokens_of(rank), " tokens"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lastflop
