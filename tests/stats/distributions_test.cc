#include "stats/distributions.h"

#include <cmath>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(DistributionsTest, NormalMatchesItsTable) {
  EXPECT_NEAR(NormalCdf(1.959963984540054), 0.975, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(NormalQuantile(1e-10), -6.361340902404056, 1e-9);
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-12);
}

TEST(DistributionsTest, StudentCriticalValuesMatchTheirTable) {
  struct Row {
    int degrees_of_freedom;
    double at_5_percent;
  };
  for (const Row& row : {Row{1, 12.7062047}, Row{2, 4.30265273}, Row{3, 3.18244631},
                         Row{10, 2.22813885}, Row{100, 1.98397152}, Row{2'000'000, 1.95996398}}) {
    EXPECT_NEAR(StudentCriticalValue(0.05, row.degrees_of_freedom), row.at_5_percent, 1e-6)
        << row.degrees_of_freedom;
  }
}

TEST(DistributionsTest, StudentTailUndoesItsCriticalValue) {
  for (const int degrees_of_freedom : {1, 2, 3, 7, 200, 100'000}) {
    for (const double tail : {1.0, 0.9, 0.05, 1e-4, 1e-9}) {
      const double t = StudentCriticalValue(tail, degrees_of_freedom);
      EXPECT_NEAR(StudentTwoSidedTail(t, degrees_of_freedom) / tail, 1, 1e-7)
          << degrees_of_freedom << " " << tail;
    }
  }
}

TEST(DistributionsTest, StudentStaysFiniteAtTheEdges) {
  EXPECT_EQ(StudentTwoSidedTail(1e300, 1), 0);
  EXPECT_EQ(StudentTwoSidedTail(0, 5), 1);
  EXPECT_TRUE(std::isfinite(StudentCriticalValue(1e-15, 1)));
  EXPECT_TRUE(std::isfinite(StudentCriticalValue(1e-15, 3)));
}

TEST(DistributionsTest, BetaMatchesItsClosedForms) {
  EXPECT_NEAR(IncompleteBeta(1, 1, 0.3), 0.3, 1e-14);
  EXPECT_NEAR(IncompleteBeta(3, 1, 0.5), 0.125, 1e-14);
  EXPECT_NEAR(IncompleteBeta(1, 4, 0.2), 1 - std::pow(0.8, 4), 1e-14);
  EXPECT_NEAR(BetaQuantile(3, 1, 0.125), 0.5, 1e-12);
}

}  // namespace
}  // namespace lastflop
