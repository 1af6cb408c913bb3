// What the interval of a mix is worth where those of its points are wide.
#include "planner/mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "planner/figures.h"
#include "stats/estimate.h"
#include "tests/stats/simulated_sampler.h"

namespace lastflop {
namespace {

// The share of mixes of points at which a plan is compared with itself, three launches of
// `num_pairs` each, that are called a difference.
double FalseShare(const SimulationOptions& options, int num_points, int num_pairs) {
  constexpr int kMixes = 400;
  int num_false = 0;
  for (int mix = 0; mix < kMixes; ++mix) {
    std::vector<MixPart> parts;
    for (int point = 0; point < num_points; ++point) {
      SimulatedSampler sampler(options, static_cast<uint64_t>(mix * num_points + point));
      std::vector<Pair> pairs;
      for (int launch = 0; launch < 3; ++launch) {
        sampler.Launch();
        for (int i = 0; i < num_pairs; ++i) {
          pairs.push_back(sampler.Next());
        }
      }
      const auto estimate = EstimateSpeedup(pairs, {});
      EXPECT_TRUE(estimate.ok()) << estimate.status();
      parts.push_back({1.0, {.estimate = estimate->speedup}});
      if (estimate->interval.has_value()) {
        parts.back().speedup.low = estimate->interval->low;
        parts.back().speedup.high = estimate->interval->high;
      }
    }
    const auto speedup = MixSpeedup(parts);
    if (speedup->low.has_value() && EffectOf(*speedup, 0) != Effect::kUndecided) {
      ++num_false;
    }
  }
  return static_cast<double>(num_false) / kMixes;
}

TEST(MixSpeedupTest, CallsEqualPlansEqualHoweverNoisyTheirPoints) {
  for (const int num_points : {2, 3, 5}) {
    EXPECT_LE(FalseShare({.noise = 0.03}, num_points, 1), 0.05) << num_points;
    EXPECT_LE(FalseShare({.noise = 0.77}, num_points, 1), 0.05) << num_points;
    EXPECT_LE(FalseShare({.outlier_share = 0.3, .outlier_factor = 20}, num_points, 1), 0.05)
        << num_points;
    EXPECT_LE(FalseShare({.outlier_share = 0.3, .outlier_factor = 20}, num_points, 6), 0.05)
        << num_points;
  }
}

// Two points as a host beside builds gave them: both undecided, and their mix was called slower.
TEST(MixSpeedupTest, IsAsUndecidedAsItsPoints) {
  const std::vector<MixPart> parts = {
      {1.0, {.estimate = 0.0364, .low = 6.8e-6, .high = 194.8}},
      {1.0, {.estimate = 0.202, .low = 4.5e-6, .high = 9070.8}},
  };
  EXPECT_EQ(EffectOf(*MixSpeedup(parts), 0.01), Effect::kUndecided);
  EXPECT_GT(*MixSpeedup(parts)->high, 1);
}

// Where intervals are narrow it makes no difference in which scale distances are added.
TEST(MixSpeedupTest, AddsNarrowDistancesInSquares) {
  const std::vector<MixPart> parts = {
      {1.0, {.estimate = 1.25, .low = 1.25 / 1.001, .high = 1.25 * 1.001}},
      {1.0, {.estimate = 1.25, .low = 1.25 / 1.001, .high = 1.25 * 1.001}},
  };
  const auto mix = MixSpeedup(parts);
  EXPECT_NEAR(*mix->high / 1.25 - 1, 0.001 / std::sqrt(2), 1e-6);
  EXPECT_NEAR(1 - *mix->low / 1.25, 0.001 / std::sqrt(2), 1e-6);
}

}  // namespace
}  // namespace lastflop
