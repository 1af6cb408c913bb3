#include "worker/device_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lastflop {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TEST(DeviceTimelineTest, CountsOverlapOnceAndClosesToTheStep) {
  // The second op of two kernels begins while the first still runs; the fourth after a gap.
  const auto times =
      DivideAmongOps({{10, 20}, {18, 25}, {25, 30}, {33, 40}, {35, 38}}, {1, 2, 0, 1, 1});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(times->op_us,
              ElementsAre(DoubleEq(10), DoubleEq(10), DoubleEq(0), DoubleEq(7), DoubleEq(0)));
  EXPECT_THAT(times->idle_us,
              ElementsAre(DoubleEq(0), DoubleEq(0), DoubleEq(0), DoubleEq(3), DoubleEq(0)));
  const double sum = std::accumulate(times->op_us.begin(), times->op_us.end(), 0.0) +
                     std::accumulate(times->idle_us.begin(), times->idle_us.end(), 0.0);
  EXPECT_DOUBLE_EQ(sum, 40 - 10);
}

TEST(DeviceTimelineTest, RefusesATraceOfAnotherStep) {
  const auto times = DivideAmongOps({{0, 1}, {1, 2}}, {1, 2});
  ASSERT_EQ(times.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(times.status().message()), testing::HasSubstr("2 kernels"));
}

TEST(DeviceTimelineTest, TakesAStepThatBeginsNothing) {
  const auto times = DivideAmongOps({}, {0, 0});
  ASSERT_TRUE(times.ok());
  EXPECT_THAT(times->op_us, ElementsAre(DoubleEq(0), DoubleEq(0)));
}

}  // namespace
}  // namespace lastflop
