#include "collectives/cpu_collectives.h"

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "collectives/all_reduce_algorithm.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr AllReduceAlgorithm kAlgorithms[] = {
    AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot, AllReduceAlgorithm::kRing};

float ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Runs `body` on threads that are the ranks of a gang with one communicator over all of them.
void WithRanks(int num_ranks, CpuCommunicator::Options options,
               const std::function<void(Gang&, CpuCommunicator&)>& body) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(num_ranks, [&](int rank) {
    auto gang = JoinGang(path, rank, num_ranks, milliseconds(20'000));
    ASSERT_TRUE(gang.ok()) << gang.status();
    auto communicator = CpuCommunicator::Create(**gang, options);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    body(**gang, **communicator);
    // Nobody leaves while another still works: leaving is ending.
    EXPECT_TRUE((*gang)->Barrier().ok());
  });
}

std::vector<uint16_t> RandomRow(int64_t count, int rank, uint64_t stream) {
  std::vector<uint16_t> row;
  for (int64_t i = 0; i < count; ++i) {
    row.push_back(ToBf16(
        CounterUniform(7 + static_cast<uint64_t>(rank), stream, static_cast<uint64_t>(i)) - 0.5f));
  }
  return row;
}

TEST(CpuCollectivesTest, SumsIntegersExactlyForEveryCountRankCountAndAlgorithm) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    WithRanks(num_ranks, {}, [&](Gang&, CpuCommunicator& communicator) {
      for (const AllReduceAlgorithm algorithm : kAlgorithms) {
        for (const int64_t count : {0, 1, 2, 10, 31, 33, 1000, 262'144, 262'151, 600'001}) {
          std::vector<uint16_t> data;
          for (int64_t i = 0; i < count; ++i) {
            data.push_back(ToBf16(static_cast<float>((i + communicator.rank()) % 17)));
          }
          const auto timing = communicator.AllReduce(data, algorithm);
          ASSERT_TRUE(timing.ok()) << timing.status();
          EXPECT_EQ(timing->ran, algorithm);
          EXPECT_GE(timing->wait_us, 0);
          for (int64_t i = 0; i < count; ++i) {
            float sum = 0;
            for (int r = 0; r < num_ranks; ++r) {
              sum += static_cast<float>((i + r) % 17);
            }
            ASSERT_EQ(ToFloat(data[static_cast<size_t>(i)]), sum)
                << ToWord(algorithm) << " " << i << " of " << count << " over " << num_ranks;
          }
        }
      }
    });
  }
}

TEST(CpuCollectivesTest, GivesEveryRankTheSameBitsOfARandomSumRoundedOnce) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 5003;
  WithRanks(kRanks, {}, [&](Gang&, CpuCommunicator& communicator) {
    std::vector<uint16_t> in_rank_order;
    for (size_t i = 0; i < kCount; ++i) {
      float sum = 0;
      for (int r = 0; r < kRanks; ++r) {
        sum += ToFloat(RandomRow(kCount, r, 1)[0]) * 0 +
               ToFloat(ToBf16(CounterUniform(7 + static_cast<uint64_t>(r), 1, i) - 0.5f));
      }
      in_rank_order.push_back(ToBf16(sum));
    }
    for (const AllReduceAlgorithm algorithm : kAlgorithms) {
      std::vector<uint16_t> data = RandomRow(kCount, communicator.rank(), 1);
      ASSERT_TRUE(communicator.AllReduce(data, algorithm).ok());
      std::vector<uint16_t> all(kCount * kRanks);
      ASSERT_TRUE(
          communicator
              .AllGather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(all)))
              .ok());
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(all[i], all[kCount + i]);
        ASSERT_EQ(all[i], all[2 * kCount + i]);
        if (algorithm == AllReduceAlgorithm::kRing) {
          // Another order of three fp32 sums: at most one step of bf16 apart.
          ASSERT_NEAR(ToFloat(all[i]), ToFloat(in_rank_order[i]), 0x1p-7);
        } else {
          ASSERT_EQ(all[i], in_rank_order[i]);
        }
      }
    }
  });
}

TEST(CpuCollectivesTest, KeepsManyCallsInARowApart) {
  WithRanks(2, {}, [](Gang&, CpuCommunicator& communicator) {
    for (int round = 0; round < 300; ++round) {
      const AllReduceAlgorithm algorithm = kAlgorithms[round % 3];
      std::vector<uint16_t> data(100 + static_cast<size_t>(round % 7),
                                 ToBf16(static_cast<float>(round % 64)));
      ASSERT_TRUE(communicator.AllReduce(data, algorithm).ok());
      for (const uint16_t value : data) {
        ASSERT_EQ(ToFloat(value), static_cast<float>(2 * (round % 64)));
      }
    }
  });
}

TEST(CpuCollectivesTest, SumsOnSeveralThreadsOfARank) {
  CpuCommunicator::Options options;
  options.parallel_for = [](int64_t count, absl::FunctionRef<void(int64_t, int64_t)> fn) {
    fn(count / 3, count);
    fn(0, count / 3);
  };
  WithRanks(2, options, [](Gang&, CpuCommunicator& communicator) {
    for (const AllReduceAlgorithm algorithm : kAlgorithms) {
      std::vector<uint16_t> data(100'001, ToBf16(3));
      ASSERT_TRUE(communicator.AllReduce(data, algorithm).ok());
      EXPECT_THAT(data, testing::Each(ToBf16(6)));
    }
  });
}

TEST(CpuCollectivesTest, NamesRanksAndCountsWhenTheyDiffer) {
  WithRanks(3, {}, [](Gang&, CpuCommunicator& communicator) {
    std::vector<uint16_t> data(communicator.rank() == 2 ? 8 : 16, 0);
    const absl::Status status = communicator.AllReduce(data, AllReduceAlgorithm::kTwoShot).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("rank 0: all_reduce of 16"));
    EXPECT_THAT(status.message(), HasSubstr("rank 2: all_reduce of 8"));
    // Nothing was left half done.
    std::vector<uint16_t> next(16, ToBf16(1));
    EXPECT_TRUE(communicator.AllReduce(next, AllReduceAlgorithm::kTwoShot).ok());
    EXPECT_THAT(next, testing::Each(ToBf16(3)));
  });
}

TEST(CpuCollectivesTest, NamesTheRankWhoseContributionWasDropped) {
  CpuCommunicator::Options options;
  options.timeout = milliseconds(100);
  WithRanks(2, options, [](Gang& gang, CpuCommunicator& communicator) {
    std::vector<uint16_t> data(16, 0);
    if (communicator.rank() == 0) {
      const absl::Status status =
          communicator.AllReduce(data, AllReduceAlgorithm::kOneShot).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(), HasSubstr("rank 1 of 2 did not come within 100 ms"));
      EXPECT_EQ(communicator.AllReduce(data, AllReduceAlgorithm::kOneShot).status().code(),
                absl::StatusCode::kFailedPrecondition);
    }
    ASSERT_TRUE(gang.Barrier().ok());
    if (communicator.rank() == 1) {
      // Its late contribution meets data that is still there; the next call finds nobody.
      communicator.AllReduce(data, AllReduceAlgorithm::kOneShot).status().IgnoreError();
      const absl::Status status =
          communicator.AllReduce(data, AllReduceAlgorithm::kOneShot).status();
      EXPECT_FALSE(status.ok());
    }
  });
}

TEST(CpuCollectivesTest, ResolvesAutoBySizeAndRefusesWhatTheCpuHasNot) {
  EXPECT_EQ(*ResolveCpuAllReduce(AllReduceAlgorithm::kAuto, kTwoShotFromBytes - 2, 2),
            AllReduceAlgorithm::kOneShot);
  EXPECT_EQ(*ResolveCpuAllReduce(AllReduceAlgorithm::kAuto, kTwoShotFromBytes, 2),
            AllReduceAlgorithm::kTwoShot);
  EXPECT_EQ(*ResolveCpuAllReduce(AllReduceAlgorithm::kAuto, kTwoShotFromBytes / 3, 4),
            AllReduceAlgorithm::kOneShot);
  EXPECT_EQ(*ResolveCpuAllReduce(AllReduceAlgorithm::kAuto, kTwoShotFromBytes / 3 + 2, 4),
            AllReduceAlgorithm::kTwoShot);
  EXPECT_EQ(*ResolveCpuAllReduce(AllReduceAlgorithm::kAuto, 1 << 30, 1),
            AllReduceAlgorithm::kOneShot);
  EXPECT_EQ(ResolveCpuAllReduce(AllReduceAlgorithm::kNccl, 8, 2).status().code(),
            absl::StatusCode::kUnimplemented);
  WithRanks(1, {}, [](Gang&, CpuCommunicator& communicator) {
    std::vector<uint16_t> data(4, 0);
    const absl::Status status =
        communicator.AllReduce(data, AllReduceAlgorithm::kAuto, ActivationFormat::kFp8).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("collectives.payload=fp8"));
  });
}

TEST(CpuCollectivesTest, RunsGroupsSideBySide) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(4, [&](int rank) {
    auto gang = JoinGang(path, rank, 4, milliseconds(20'000));
    ASSERT_TRUE(gang.ok()) << gang.status();
    CpuCommunicator::Options options;
    options.ranks = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    auto communicator = CpuCommunicator::Create(**gang, options);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    std::vector<uint16_t> data(40, ToBf16(static_cast<float>(1 << rank)));
    ASSERT_TRUE((*communicator)->AllReduce(data, AllReduceAlgorithm::kRing).ok());
    EXPECT_THAT(data, testing::Each(ToBf16(rank < 2 ? 3 : 12)));
    EXPECT_TRUE((*gang)->Barrier().ok());
  });
}

TEST(CpuCollectivesTest, RefusesGroupsThatDoNotAgree) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(3, [&](int rank) {
    auto gang = JoinGang(path, rank, 3, milliseconds(20'000));
    ASSERT_TRUE(gang.ok()) << gang.status();
    CpuCommunicator::Options options;
    options.ranks = rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 2};
    EXPECT_EQ(CpuCommunicator::Create(**gang, options).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE((*gang)->Barrier().ok());
  });
}

// Two ranks with four experts: what goes where is short enough to say by hand.
TEST(CpuCollectivesTest, DispatchesATokenToEveryRankThatOwnsOneOfItsExperts) {
  CpuCommunicator::Options options;
  options.max_tokens = 3;
  options.hidden_size = 2;
  options.top_k = 2;
  WithRanks(2, options, [](Gang&, CpuCommunicator& communicator) {
    // Rank 0 has three tokens: experts {0, 1} (only rank 0), {1, 2} (both), {2, 3} (only rank 1).
    // Rank 1 has one: {3, 0}.
    const bool first = communicator.rank() == 0;
    const std::vector<uint16_t> rows =
        first ? std::vector<uint16_t>{1, 2, 3, 4, 5, 6} : std::vector<uint16_t>{7, 8};
    const std::vector<int32_t> ids =
        first ? std::vector<int32_t>{0, 1, 1, 2, 2, 3} : std::vector<int32_t>{3, 0};
    const std::vector<float> weights(ids.size(), 0.5f);
    std::vector<uint16_t> got_rows(12);
    std::vector<int32_t> got_ids(12);
    std::vector<float> got_weights(12);
    const AllToAllShape shape = {
        .num_tokens = first ? 3 : 1, .top_k = 2, .hidden_size = 2, .num_experts = 4, .ranks = 2};
    for (int round = 0; round < 3; ++round) {
      int64_t num_received = 0;
      ASSERT_TRUE(communicator
                      .Dispatch(shape, {rows, ids, weights}, {got_rows, got_ids, got_weights},
                                &num_received)
                      .ok());
      ASSERT_EQ(num_received, 3);
      got_rows.resize(6);
      got_ids.resize(6);
      if (first) {
        EXPECT_THAT(got_rows, ElementsAre(1, 2, 3, 4, 7, 8));
        EXPECT_THAT(got_ids, ElementsAre(0, 1, 1, 2, 3, 0));
      } else {
        EXPECT_THAT(got_rows, ElementsAre(3, 4, 5, 6, 7, 8));
        EXPECT_THAT(got_ids, ElementsAre(1, 2, 2, 3, 3, 0));
      }
      const std::vector<uint16_t> partial(6, ToBf16(first ? 1 : 2));
      std::vector<uint16_t> out(rows.size());
      const std::vector<uint16_t> shared(rows.size(), ToBf16(4));
      ASSERT_TRUE(communicator.Combine(partial, shared, out).ok());
      std::vector<float> sums;
      for (size_t t = 0; t < out.size(); t += 2) {
        sums.push_back(ToFloat(out[t]));
      }
      if (first) {
        EXPECT_THAT(sums, ElementsAre(5, 7, 6));
      } else {
        EXPECT_THAT(sums, ElementsAre(7));
      }
      got_rows.resize(12);
      got_ids.resize(12);
    }
  });
}

TEST(CpuCollectivesTest, DispatchesNothingWhenARankHasNoTokens) {
  CpuCommunicator::Options options;
  options.max_tokens = 2;
  options.hidden_size = 4;
  options.top_k = 1;
  WithRanks(3, options, [](Gang&, CpuCommunicator& communicator) {
    // Only rank 2 has a token, for expert 0 of rank 0: rank 1 is idle.
    const int64_t num_tokens = communicator.rank() == 2 ? 1 : 0;
    const std::vector<uint16_t> rows(static_cast<size_t>(num_tokens * 4), ToBf16(1));
    const std::vector<int32_t> ids(static_cast<size_t>(num_tokens), 0);
    const std::vector<float> weights(static_cast<size_t>(num_tokens), 1);
    std::vector<uint16_t> got_rows(24);
    std::vector<int32_t> got_ids(6);
    std::vector<float> got_weights(6);
    int64_t num_received = -1;
    const AllToAllShape shape = {
        .num_tokens = num_tokens, .top_k = 1, .hidden_size = 4, .num_experts = 6, .ranks = 3};
    ASSERT_TRUE(
        communicator
            .Dispatch(shape, {rows, ids, weights}, {got_rows, got_ids, got_weights}, &num_received)
            .ok());
    EXPECT_EQ(num_received, communicator.rank() == 0 ? 1 : 0);
    const std::vector<uint16_t> partial(static_cast<size_t>(num_received * 4), ToBf16(5));
    std::vector<uint16_t> out(rows.size());
    ASSERT_TRUE(communicator.Combine(partial, {}, out).ok());
    EXPECT_THAT(out, testing::Each(ToBf16(5)));
  });
}

TEST(CpuCollectivesTest, RefusesADispatchThatDoesNotFit) {
  CpuCommunicator::Options options;
  options.max_tokens = 1;
  options.hidden_size = 1;
  options.top_k = 1;
  WithRanks(1, options, [](Gang&, CpuCommunicator& communicator) {
    std::vector<uint16_t> rows(1);
    std::vector<int32_t> ids = {4};
    std::vector<float> weights(1);
    int64_t num_received = 0;
    AllToAllShape shape = {
        .num_tokens = 1, .top_k = 1, .hidden_size = 1, .num_experts = 4, .ranks = 1};
    const auto dispatch = [&] {
      return communicator.Dispatch(shape, {rows, ids, weights}, {rows, ids, weights}, &num_received)
          .status();
    };
    EXPECT_THAT(dispatch().message(), HasSubstr("expert 4: experts are 0 to 3"));
    shape.payload = ActivationFormat::kFp8;
    EXPECT_EQ(dispatch().code(), absl::StatusCode::kUnimplemented);
    shape.payload = ActivationFormat::kBf16;
    shape.algorithm = AllToAllAlgorithm::kNccl;
    EXPECT_EQ(dispatch().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(communicator.Combine({}, {}, {}).status().code(),
              absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace lastflop
