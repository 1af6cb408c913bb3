#include "collectives/stage_link.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/run_ranks.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::HasSubstr;

void WithLink(int num_ranks, const std::function<StageLink::Options(int)>& options,
              const std::function<void(Gang&, StageLink&)>& body) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(num_ranks, [&](int rank) {
    auto gang = JoinGang(path, rank, num_ranks, milliseconds(20'000));
    ASSERT_TRUE(gang.ok()) << gang.status();
    auto link = StageLink::Create(**gang, options(rank));
    ASSERT_TRUE(link.ok()) << link.status();
    body(**gang, **link);
    EXPECT_TRUE((*gang)->Barrier().ok());
  });
}

TEST(StageLinkTest, HandsMessagesDownAPipelineInOrder) {
  constexpr int kStages = 3;
  WithLink(
      kStages,
      [](int rank) {
        return StageLink::Options{
            .to = rank + 1 < kStages ? rank + 1 : -1, .from = rank - 1, .max_elements = 1000};
      },
      [](Gang& gang, StageLink& link) {
        for (uint16_t message = 0; message < 50; ++message) {
          std::vector<uint16_t> data(message == 7 ? 0 : 1000, message);
          if (gang.rank() > 0) {
            data.assign(data.size(), 9999);
            const auto timing = link.Receive(data);
            ASSERT_TRUE(timing.ok()) << timing.status();
            EXPECT_GE(timing->wait_us, 0);
            EXPECT_THAT(data, Each(message + gang.rank() - 1));
          }
          if (gang.rank() + 1 < kStages) {
            for (uint16_t& value : data) {
              value = static_cast<uint16_t>(message + gang.rank());
            }
            ASSERT_TRUE(link.Send(data).ok());
          }
        }
      });
}

TEST(StageLinkTest, NamesBothRanksWhenSizesDiffer) {
  WithLink(
      2,
      [](int rank) {
        return StageLink::Options{.to = rank == 0 ? 1 : -1, .from = rank - 1, .max_elements = 10};
      },
      [](Gang& gang, StageLink& link) {
        std::vector<uint16_t> data(gang.rank() == 0 ? 10 : 9);
        if (gang.rank() == 0) {
          EXPECT_TRUE(link.Send(data).ok());
          EXPECT_TRUE(gang.Barrier().ok());
          ASSERT_TRUE(link.Send(data).ok());
          EXPECT_EQ(link.Send(data).status().code(), absl::StatusCode::kAborted);
        } else {
          EXPECT_THAT(link.Receive(data).status().message(),
                      HasSubstr("rank 1 expects 9 elements, rank 0 sent 10"));
          EXPECT_TRUE(gang.Barrier().ok());
        }
      });
}

TEST(StageLinkTest, TimesOutWithTheNameOfTheSilentRank) {
  WithLink(
      2,
      [](int rank) {
        return StageLink::Options{.to = rank == 0 ? 1 : -1,
                                  .from = rank - 1,
                                  .max_elements = 10,
                                  .timeout = milliseconds(50)};
      },
      [](Gang& gang, StageLink& link) {
        std::vector<uint16_t> data(10);
        if (gang.rank() == 1) {
          const absl::Status status = link.Receive(data).status();
          EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
          EXPECT_THAT(status.message(), HasSubstr("rank 0 of 2 did not come"));
        } else {
          EXPECT_FALSE(link.Receive(data).ok());  // The first stage hears nobody.
        }
      });
}

// Tokens go back to the first stage: no rank waits for room, with a slot for every micro-batch.
TEST(StageLinkTest, LetsEveryMicroBatchBeUnderWayAroundARing) {
  constexpr int kStages = 2;
  constexpr int64_t kMicroBatches = 4;
  WithLink(
      kStages,
      [](int rank) {
        return StageLink::Options{.to = (rank + 1) % kStages,
                                  .from = (rank + kStages - 1) % kStages,
                                  .max_elements = 12,
                                  .slots = kMicroBatches};
      },
      [](Gang& gang, StageLink& link) {
        for (uint16_t step = 0; step < 20; ++step) {
          for (uint16_t j = 0; j < kMicroBatches; ++j) {
            const auto mark = static_cast<uint16_t>(step * kMicroBatches + j);
            std::vector<uint16_t> hidden(7, mark);
            std::vector<uint16_t> residual(5, static_cast<uint16_t>(mark + 1));
            if (gang.rank() == 0) {
              if (step > 0) {
                ASSERT_TRUE(link.Receive(std::span(residual).first(1)).ok());
                EXPECT_EQ(residual[0], mark - kMicroBatches);
                residual[0] = residual[1];
              }
              ASSERT_TRUE(link.Send(hidden, residual).ok());
              continue;
            }
            std::fill(hidden.begin(), hidden.end(), uint16_t{0});
            std::fill(residual.begin(), residual.end(), uint16_t{0});
            ASSERT_TRUE(link.Receive(hidden, residual).ok());
            EXPECT_THAT(hidden, Each(mark));
            EXPECT_THAT(residual, Each(mark + 1));
            ASSERT_TRUE(link.Send(std::span(hidden).first(1)).ok());
          }
        }
      });
}

TEST(StageLinkTest, NamesTheStageThatWasKilledBetweenMicroBatches) {
  const std::string path = FreshRendezvous();
  const auto outcomes = RunProcessRanks(2, [&](int rank) -> std::string {
    auto gang = JoinGang(path, rank, 2, milliseconds(30'000));
    if (!gang.ok()) {
      return gang.status().ToString();
    }
    auto link = StageLink::Create(
        **gang, {.to = rank == 0 ? 1 : -1, .from = rank - 1, .max_elements = 100});
    if (!link.ok()) {
      return link.status().ToString();
    }
    std::vector<uint16_t> data(100, 7);
    if (rank == 0) {
      (*link)->Send(data).IgnoreError();
      kill(getpid(), SIGKILL);
    }
    const absl::Status first = (*link)->Receive(data).status();
    const absl::Status second = first.ok() ? (*link)->Receive(data).status() : first;
    return second.ToString();
  });
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_THAT(outcomes[1].text, HasSubstr("ABORTED"));
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 of 2 ended"));
}

TEST(StageLinkTest, RefusesEndsThatDoNotMeet) {
  const std::string path = FreshRendezvous();
  RunThreadRanks(2, [&](int rank) {
    auto gang = JoinGang(path, rank, 2, milliseconds(20'000));
    ASSERT_TRUE(gang.ok()) << gang.status();
    const StageLink::Options options = {.to = rank == 0 ? 1 : -1, .from = -1, .max_elements = 4};
    EXPECT_EQ(StageLink::Create(**gang, options).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE((*gang)->Barrier().ok());
  });
}

}  // namespace
}  // namespace lastflop
