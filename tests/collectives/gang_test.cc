#include "collectives/gang.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kTimeout{20'000};

std::unique_ptr<Gang> Join(const std::string& path, int rank, int num_ranks,
                           milliseconds timeout = kTimeout) {
  absl::StatusOr<std::unique_ptr<Gang>> gang = JoinGang(path, rank, num_ranks, timeout);
  EXPECT_TRUE(gang.ok()) << gang.status();
  return gang.ok() ? *std::move(gang) : nullptr;
}

TEST(GangTest, WorksForASingleRankWithoutARendezvous) {
  const std::unique_ptr<Gang> gang = Join("", 0, 1);
  ASSERT_NE(gang, nullptr);
  EXPECT_TRUE(gang->Barrier().ok());
  EXPECT_THAT(*gang->AllGather(2.5), ElementsAre(2.5));
  EXPECT_EQ(*gang->BroadcastFromLeader("plan"), "plan");
  EXPECT_EQ(gang->MapShared(100)->of_rank.size(), 1u);
  EXPECT_FALSE(gang->IsBroken());
}

TEST(GangTest, GathersInRankOrderManyTimesOver) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(3, [&](int rank) {
    const std::unique_ptr<Gang> gang = Join(path, rank, 3);
    ASSERT_NE(gang, nullptr);
    for (int round = 0; round < 200; ++round) {
      const auto values = gang->AllGather(rank + 10.0 * round);
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_THAT(*values, ElementsAre(10.0 * round, 10.0 * round + 1, 10.0 * round + 2));
    }
  });
}

TEST(GangTest, BroadcastsTheLeadersBytesAndNoOthers) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(2, [&](int rank) {
    const std::unique_ptr<Gang> gang = Join(path, rank, 2);
    ASSERT_NE(gang, nullptr);
    const std::string long_text(1 << 20, 'x');
    EXPECT_EQ(*gang->BroadcastFromLeader(rank == 0 ? long_text : "mine"), long_text);
    EXPECT_EQ(*gang->BroadcastFromLeader(rank == 0 ? "" : "mine"), "");
    EXPECT_EQ(gang->BroadcastFromLeader(long_text + "x").status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(*gang->BroadcastFromLeader(rank == 0 ? "next" : ""), "next");
  });
}

TEST(GangTest, MapsMemoryThatEveryRankSees) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(3, [&](int rank) {
    const std::unique_ptr<Gang> gang = Join(path, rank, 3);
    ASSERT_NE(gang, nullptr);
    const auto memory = gang->MapShared(5000);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->bytes, 5000u);
    EXPECT_EQ(memory->of_rank[static_cast<size_t>(rank)][4999], std::byte{0});
    memory->of_rank[static_cast<size_t>(rank)][4999] = static_cast<std::byte>(rank + 1);
    ASSERT_TRUE(gang->Barrier().ok());
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(memory->of_rank[r][4999], static_cast<std::byte>(r + 1));
    }
  });
}

TEST(GangTest, RefusesUnequalSizesOfSharedMemoryOnEveryRank) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(2, [&](int rank) {
    const std::unique_ptr<Gang> gang = Join(path, rank, 2);
    ASSERT_NE(gang, nullptr);
    const auto memory = gang->MapShared(rank == 0 ? 4096 : 8192);
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(memory.status().message(), HasSubstr("4096, 8192"));
    EXPECT_TRUE(gang->MapShared(4096).ok());
  });
}

TEST(GangTest, NamesTheRankThatDoesNotCome) {
  const absl::Status status = JoinGang(FreshRendezvous(), 0, 2, milliseconds(50)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 of 2"));
  const absl::Status alone = JoinGang(FreshRendezvous(), 1, 2, milliseconds(50)).status();
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(alone.message(), HasSubstr("rank 0 of 2"));
}

TEST(GangTest, TurnsAwayARankOfAnotherGangSizeAndWaitsForTheRightOne) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(2, [&](int rank) {
    if (rank == 1) {
      const absl::Status wrong = JoinGang(path, 1, 3, kTimeout).status();
      EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(wrong.message(), HasSubstr("rank 1 of 3 came to a gang of 2"));
    }
    const std::unique_ptr<Gang> gang = Join(path, rank, 2);
    ASSERT_NE(gang, nullptr);
    EXPECT_TRUE(gang->Barrier().ok());
  });
}

TEST(GangTest, RefusesARankOutsideTheGangAndAPathTooLong) {
  EXPECT_EQ(JoinGang("x", 2, 2, kTimeout).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(JoinGang(std::string(200, 'x'), 0, 2, kTimeout).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(GangTest, TellsTheRemainingRanksWhichRankLeft) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(3, [&](int rank) {
    const std::unique_ptr<Gang> gang = Join(path, rank, 3);
    ASSERT_NE(gang, nullptr);
    ASSERT_TRUE(gang->Barrier().ok());
    if (rank == 1) {
      return;
    }
    const absl::Status status = gang->Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(status.message(), "rank 1 of 3 ended");
    EXPECT_TRUE(gang->IsBroken());
  });
}

TEST(GangTest, MeetsAgainOnAPathThatADeadGangLeft) {
  const std::string path = FreshRendezvous();
  EXPECT_FALSE(JoinGang(path, 0, 2, milliseconds(20)).ok());
  for (int round = 0; round < 2; ++round) {
    RunThreadRanks(2, [&](int rank) {
      const std::unique_ptr<Gang> gang = Join(path, rank, 2);
      ASSERT_NE(gang, nullptr);
      EXPECT_TRUE(gang->Barrier().ok());
    });
  }
}

}  // namespace
}  // namespace lastflop
