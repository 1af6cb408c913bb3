// Ranks as real processes: sums of awkward sizes, a rank killed inside a call, unequal counts.
#include <signal.h>
#include <unistd.h>

#include <bit>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/cpu_collectives.h"
#include "collectives/gang.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Small integers: a sum over four ranks is exact in bf16.
uint16_t Contribution(int rank, size_t index) {
  const auto value = static_cast<float>((index * 7 + static_cast<size_t>(rank) * 3) % 29);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

float ExpectedSum(int num_ranks, size_t index) {
  float sum = 0;
  for (int r = 0; r < num_ranks; ++r) {
    sum += static_cast<float>((index * 7 + static_cast<size_t>(r) * 3) % 29);
  }
  return sum;
}

// "ok", or what went wrong.
std::string SumOnce(CpuCommunicator& communicator, AllReduceAlgorithm algorithm, size_t bytes) {
  std::vector<uint16_t> data(bytes / 2);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = Contribution(communicator.rank(), i);
  }
  const auto timing = communicator.AllReduce(data, algorithm);
  if (!timing.ok()) {
    return timing.status().ToString();
  }
  if (timing->ran != algorithm) {
    return absl::StrCat("ran ", ToWord(timing->ran));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (std::bit_cast<float>(uint32_t{data[i]} << 16) != ExpectedSum(communicator.num_ranks(), i)) {
      return absl::StrCat("wrong sum at ", i, " of ", data.size());
    }
  }
  return "ok";
}

using RankBody = std::function<std::string(Gang&, CpuCommunicator&)>;

std::vector<RankOutcome> RunGang(const std::string& path, int num_ranks, milliseconds timeout,
                                 const RankBody& body) {
  return RunProcessRanks(num_ranks, [&](int rank) -> std::string {
    auto gang = JoinGang(path, rank, num_ranks, milliseconds(30'000));
    if (!gang.ok()) {
      return gang.status().ToString();
    }
    CpuCommunicator::Options options;
    options.timeout = timeout;
    auto communicator = CpuCommunicator::Create(**gang, options);
    if (!communicator.ok()) {
      return communicator.status().ToString();
    }
    const std::string result = body(**gang, **communicator);
    // A lost rank breaks this last meeting, which is not what a test asks about.
    (*gang)->Barrier().IgnoreError();
    return result;
  });
}

TEST(GangProcessTest, SumsEverySizeWithEveryAlgorithm) {
  constexpr size_t kMiB = 1 << 20;
  for (const int num_ranks : {2, 3, 4}) {
    const auto outcomes = RunGang(
        FreshRendezvous(), num_ranks, milliseconds(30'000), [=](Gang&, CpuCommunicator& all) {
          for (const AllReduceAlgorithm algorithm :
               {AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot,
                AllReduceAlgorithm::kRing}) {
            for (const size_t bytes :
                 {size_t{4}, size_t{20}, 8 * kMiB, 8 * kMiB + 16, 12 * kMiB, 64 * kMiB}) {
              if (num_ranks == 4 && bytes > 8 * kMiB + 16) {
                continue;  // More of the same code, slowly, where four ranks share two cores.
              }
              const std::string result = SumOnce(all, algorithm, bytes);
              if (result != "ok") {
                return absl::StrCat(ToWord(algorithm), " of ", bytes, " bytes: ", result);
              }
            }
          }
          return std::string("ok");
        });
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.text, "ok") << num_ranks << " ranks";
    }
  }
}

TEST(GangProcessTest, TellsTheOthersWhenARankIsKilledInsideACall) {
  for (const int num_ranks : {2, 3}) {
    const std::string path = FreshRendezvous();
    const auto outcomes = RunGang(
        path, num_ranks, milliseconds(30'000), [](Gang& gang, CpuCommunicator& communicator) {
          if (SumOnce(communicator, AllReduceAlgorithm::kTwoShot, 64) != "ok") {
            return std::string("the first sum failed");
          }
          if (gang.rank() == 1) {
            // The others are in the call, or about to enter it: they wait for this rank.
            kill(getpid(), SIGKILL);
          }
          return SumOnce(communicator, AllReduceAlgorithm::kTwoShot, 1 << 20);
        });
    for (size_t r = 0; r < outcomes.size(); ++r) {
      if (r == 1) {
        EXPECT_EQ(outcomes[r].signal, SIGKILL);
      } else {
        EXPECT_THAT(outcomes[r].text, HasSubstr("ABORTED"));
        EXPECT_THAT(outcomes[r].text, HasSubstr(absl::StrCat("rank 1 of ", num_ranks, " ended")));
      }
    }
    // The next gang on the same path works.
    for (const RankOutcome& outcome :
         RunGang(path, num_ranks, milliseconds(30'000), [](Gang&, CpuCommunicator& communicator) {
           return SumOnce(communicator, AllReduceAlgorithm::kOneShot, 4096);
         })) {
      EXPECT_EQ(outcome.text, "ok");
    }
  }
}

TEST(GangProcessTest, TellsTheOthersWhenTheLeaderIsKilled) {
  const auto outcomes = RunGang(FreshRendezvous(), 3, milliseconds(30'000),
                                [](Gang& gang, CpuCommunicator& communicator) {
                                  if (gang.rank() == 0) {
                                    kill(getpid(), SIGKILL);
                                  }
                                  return SumOnce(communicator, AllReduceAlgorithm::kRing, 4096);
                                });
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 of 3 ended"));
  EXPECT_THAT(outcomes[2].text, HasSubstr("rank 0 of 3 ended"));
}

TEST(GangProcessTest, NamesUnequalCountsOnEveryRank) {
  const auto outcomes = RunGang(
      FreshRendezvous(), 2, milliseconds(30'000), [](Gang& gang, CpuCommunicator& communicator) {
        return SumOnce(communicator, AllReduceAlgorithm::kOneShot, gang.rank() == 0 ? 4096 : 4098);
      });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, HasSubstr("INVALID_ARGUMENT"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 0: all_reduce of 2048"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 1: all_reduce of 2049"));
  }
}

TEST(GangProcessTest, NamesARankThatLivesButNeverContributes) {
  const auto outcomes = RunGang(
      FreshRendezvous(), 3, milliseconds(200), [](Gang& gang, CpuCommunicator& communicator) {
        return gang.rank() == 2 ? std::string("dropped")
                                : SumOnce(communicator, AllReduceAlgorithm::kTwoShot, 4096);
      });
  for (const size_t r : {0, 1}) {
    EXPECT_THAT(outcomes[r].text, HasSubstr("DEADLINE_EXCEEDED"));
    EXPECT_THAT(outcomes[r].text, HasSubstr("rank 2 of 3 did not come"));
  }
}

}  // namespace
}  // namespace lastflop
