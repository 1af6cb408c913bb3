#include "planner/economics.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "planner/accuracy.h"
#include "planner/mix.h"

namespace lastflop {
namespace {

SpeedupFigure Figure(double estimate, double low, double high) {
  SpeedupFigure figure;
  figure.estimate = estimate;
  figure.low = low;
  figure.high = high;
  return figure;
}

constexpr Effort kThreeDays = {.low_hours = 16, .likely_hours = 24, .high_hours = 40};

TEST(NetGainTest, WeighsWhatIsSavedAgainstTheEffort) {
  const Economics economics{.gpu_hours = 50000, .engineer_hour_in_gpu_hours = 40};
  const SpeedupFigure figure = Figure(1.25, 1.2, 1.3);
  const auto gain = NetGain(figure, 1.25, kThreeDays, ChanceOfSuccess(Risk::kMedium), economics);
  EXPECT_NEAR(gain->net_gpu_hours, 50000 * 0.2 * 0.8 - 960, 1e-6);
  EXPECT_NEAR(*gain->low, 50000 * (1 - 1 / 1.2) * 0.8 - 1600, 1e-6);
  EXPECT_NEAR(*gain->high, 50000 * (1 - 1 / 1.3) * 0.8 - 640, 1e-6);
  EXPECT_NEAR(*BreakEvenGpuHours(1.25, kThreeDays, ChanceOfSuccess(Risk::kMedium), economics), 6000,
              1e-6);
}

TEST(NetGainTest, CostsItsEffortWhenNothingIsProven) {
  const Economics economics{.gpu_hours = 50000, .engineer_hour_in_gpu_hours = 40};
  const auto gain = NetGain(Figure(1.02, 0.99, 1.05), /*counted=*/1, kThreeDays,
                            ChanceOfSuccess(Risk::kLow), economics);
  EXPECT_DOUBLE_EQ(gain->net_gpu_hours, -960);
  EXPECT_LE(*gain->low, gain->net_gpu_hours);
  EXPECT_GE(*gain->high, gain->net_gpu_hours);
  EXPECT_FALSE(
      BreakEvenGpuHours(1, kThreeDays, ChanceOfSuccess(Risk::kLow), economics).has_value());
}

TEST(NetGainTest, HasNoEndsWhereTheIntervalSaysNothing) {
  const Economics economics{.gpu_hours = 50000, .engineer_hour_in_gpu_hours = 40};
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [low, high] : {std::pair(1e-60, 1e60), std::pair(0.5, infinity)}) {
    const auto gain = NetGain(Figure(1.1, low, high), 1, kThreeDays, 0.8, economics);
    EXPECT_FALSE(gain->low.has_value()) << low;
    EXPECT_FALSE(gain->high.has_value()) << high;
    EXPECT_DOUBLE_EQ(gain->net_gpu_hours, -960);
  }
}

TEST(NetGainTest, IsNotAvailableWithoutGpuHours) {
  EXPECT_FALSE(
      NetGain(Figure(1.2, 1.1, 1.3), 1.2, kThreeDays, ChanceOfSuccess(Risk::kLow), {}).has_value());
}

TEST(MixSpeedupTest, RanksATenthOfTheStepMadeTwiceAsFastAtFivePercent) {
  // H11: by time share, not by the speedup of the part.
  const MixPart parts[] = {{0.1, Figure(2, 1.9, 2.1)}, {0.9, UnchangedSpeedup()}};
  EXPECT_NEAR(MixSpeedup(parts)->estimate, 1.053, 0.0005);
}

TEST(MixSpeedupTest, KeepsTheIntervalOfASinglePartAndNarrowsThatOfIndependentOnes) {
  const MixPart one[] = {{1, Figure(1.25, 1.2, 1.3)}};
  EXPECT_NEAR(*MixSpeedup(one)->low, 1.2, 1e-12);
  EXPECT_NEAR(*MixSpeedup(one)->high, 1.3, 1e-12);
  const MixPart two[] = {{0.5, Figure(1.25, 1.2, 1.3)}, {0.5, Figure(1.25, 1.2, 1.3)}};
  EXPECT_GT(*MixSpeedup(two)->low, 1.2);
  EXPECT_LT(*MixSpeedup(two)->high, 1.3);
}

TEST(MixSpeedupTest, HasNoIntervalWhereAPartHasNone) {
  SpeedupFigure bare;
  bare.estimate = 1.1;
  const MixPart parts[] = {{0.5, bare}, {0.5, UnchangedSpeedup()}};
  EXPECT_TRUE(MixSpeedup(parts).has_value());
  EXPECT_FALSE(MixSpeedup(parts)->low.has_value());
  EXPECT_FALSE(MixSpeedup({}).has_value());
}

TEST(RelativeErrorTest, IsRelativeToTheMeasurement) {
  EXPECT_NEAR(*RelativeError(883.70, 192.44), 3.59, 0.005);
  EXPECT_FALSE(RelativeError(1, 0).has_value());
}

}  // namespace
}  // namespace lastflop
