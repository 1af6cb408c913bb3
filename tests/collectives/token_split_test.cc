// What an exchange of tokens takes, without a GPU.
#include "absl/strings/match.h"
#include "collectives/cuda/peer_all_to_all_cuda.h"
#include "gtest/gtest.h"

namespace lastflop {
namespace {

TokenSplit SplitOf(int64_t first, int64_t second) {
  TokenSplit split{.num_ranks = 2, .hidden_size = 7168, .top_k = 8, .num_experts = 384};
  split.first_token[1] = first;
  split.first_token[2] = first + second;
  return split;
}

TEST(TokenSplitTest, TakesRanksOfAnyNumberOfTokens) {
  EXPECT_TRUE(CheckTokenSplit(SplitOf(3, 2)).ok());
  EXPECT_TRUE(CheckTokenSplit(SplitOf(0, 1)).ok());
  EXPECT_TRUE(CheckTokenSplit(SplitOf(0, 0)).ok());
  EXPECT_EQ(SplitOf(3, 2).most_tokens(), 3);
  EXPECT_EQ(SplitOf(3, 2).all_tokens(), 5);
}

TEST(TokenSplitTest, RefusesWhatTheKernelsDoNotTake) {
  const auto refuses = [](TokenSplit split, const char* why) {
    const absl::Status status = CheckTokenSplit(split);
    return status.code() == absl::StatusCode::kInvalidArgument &&
           absl::StrContains(status.message(), why);
  };
  TokenSplit split = SplitOf(3, -1);
  EXPECT_TRUE(refuses(split, "rank 1 has -1 tokens"));
  split = SplitOf(3, 2);
  split.hidden_size = 7164;
  EXPECT_TRUE(refuses(split, "hidden_size=7164"));
  split = SplitOf(3, 2);
  split.top_k = 33;
  EXPECT_TRUE(refuses(split, "top_k=33"));
  split = SplitOf(3, 2);
  split.num_experts = 385;
  EXPECT_TRUE(refuses(split, "num_experts=385"));
  split = SplitOf(3, 2);
  split.num_ranks = kMaxPeerRanks + 1;
  EXPECT_TRUE(refuses(split, "1 to 8"));
}

TEST(TokenSplitTest, FitsTokensIntoTheRegion) {
  const TokenSplit split = SplitOf(8, 8);
  // A token is 896 packets of row, 4 of experts, and at most 29 words that it does not come.
  constexpr int64_t kToken = (896 + 4 + 29) * kPacketBytes;
  EXPECT_EQ(DispatchMaxTokens(split, kPacketBytes + 5 * kToken), 5);
  EXPECT_EQ(DispatchMaxTokens(split, 5 * kToken), 4);  // A packet says that the rank is here.
  EXPECT_EQ(DispatchMaxTokens(split, 1024), 0);
  EXPECT_GE(CombineMaxTokens(split, kPacketBytes + 5 * kToken), 5);
}

}  // namespace
}  // namespace lastflop
