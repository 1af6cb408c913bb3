#include "worker/cuda_telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lastflop {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Pair;

TEST(TelemetrySummaryTest, KnowsNothingOfADriverThatSaysNothing) {
  TelemetrySummary summary;
  EXPECT_THAT(summary.Texts(), Each(Pair(testing::_, "n/a")));
  summary.Add({});
  EXPECT_THAT(summary.Texts(), Each(Pair(testing::_, "n/a")));
}

TEST(TelemetrySummaryTest, SaysNoneAndZeroWhereTheDriverSaysSo) {
  TelemetrySummary summary;
  summary.Add({.throttle_reasons = 0, .ecc_errors = 0});
  EXPECT_THAT(summary.Texts(), AllOf(Contains(Pair("throttle_reasons", "none")),
                                     Contains(Pair("throttled_steps", "0 of 1")),
                                     Contains(Pair("ecc_uncorrected", "0"))));
}

TEST(TelemetrySummaryTest, CountsThrottledStepsAmongThoseOfWhichItIsTold) {
  TelemetrySummary summary;
  summary.Add({.sm_clock_mhz = 1980, .throttle_reasons = 0x4, .ecc_errors = 2});  // Power cap.
  summary.Add({.sm_clock_mhz = 1755});
  summary.Add({.throttle_reasons = 0x1});  // Idle.
  EXPECT_THAT(summary.Texts(), AllOf(Contains(Pair("sm_clock_mhz", "1755-1980")),
                                     Contains(Pair("throttle_reasons", "power cap")),
                                     Contains(Pair("throttled_steps", "1 of 2")),
                                     Contains(Pair("ecc_uncorrected", "2"))));
}

}  // namespace
}  // namespace lastflop
