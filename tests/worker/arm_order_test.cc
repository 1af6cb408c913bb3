#include "worker/arm_order.h"

#include <gtest/gtest.h>

#include <string>

namespace lastflop {
namespace {

TEST(VariantFirstTest, GivesEitherOrderToOneOfTwoPairsAndOfTwoLaunches) {
  for (const char* trial : {"t0001", "t0002", "t0003"}) {
    for (int launch = 0; launch < 4; ++launch) {
      for (int64_t pair = 0; pair < 20; pair += 2) {
        const bool first = VariantFirst(trial, launch, pair);
        EXPECT_NE(first, VariantFirst(trial, launch, pair + 1));
        EXPECT_NE(first, VariantFirst(trial, launch + 1, pair));
      }
    }
  }
}

TEST(VariantFirstTest, TossesACoinForEachTrialAndTwoPairs) {
  int num_first = 0;
  int num_alternating = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const std::string id = "t" + std::to_string(trial);
    num_first += VariantFirst(id, 0, 0) ? 1 : 0;
    num_alternating += VariantFirst(id, 0, 0) == VariantFirst(id, 0, 2) ? 1 : 0;
  }
  EXPECT_GT(num_first, 8);
  EXPECT_LT(num_first, 32);
  EXPECT_GT(num_alternating, 8);
  EXPECT_LT(num_alternating, 32);
}

}  // namespace
}  // namespace lastflop
