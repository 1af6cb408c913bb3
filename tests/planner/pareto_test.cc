#include "planner/pareto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/random.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;

TEST(ParetoLayersTest, TheFrontIsWhatNothingBeatsInBoth) {
  const std::vector<CostAndSpeedup> options = {
      {.effort_hours = 1, .speedup = 1.1},   // The cheapest.
      {.effort_hours = 8, .speedup = 1.3},   // The fastest.
      {.effort_hours = 8, .speedup = 1.2},   // As dear as that, and slower.
      {.effort_hours = 9, .speedup = 1.15},  // Beaten by three.
      {.effort_hours = 0, .speedup = 1},     // Doing nothing is as good.
      {.effort_hours = 1, .speedup = 1.1}};  // The same as the first.
  EXPECT_THAT(ParetoLayers(options), ElementsAre(1, 1, 2, 3, 0, 1));
}

TEST(ParetoLayersTest, AgreesWithComparingAllPairs) {
  std::vector<CostAndSpeedup> options;
  for (uint64_t i = 0; i < 60; ++i) {
    options.push_back({.effort_hours = static_cast<double>(CounterRandom(1, 1, i) % 12),
                       .speedup = 1 + 0.01 * static_cast<double>(1 + CounterRandom(1, 2, i) % 12)});
  }
  const auto dominates = [](const CostAndSpeedup& a, const CostAndSpeedup& b) {
    return a.effort_hours <= b.effort_hours && a.speedup >= b.speedup &&
           (a.effort_hours < b.effort_hours || a.speedup > b.speedup);
  };
  std::vector<int> expected(options.size(), 0);
  for (int layer = 1, num_left = static_cast<int>(options.size()); num_left > 0; ++layer) {
    std::vector<size_t> front;
    for (size_t i = 0; i < options.size(); ++i) {
      bool is_beaten = expected[i] != 0;
      for (size_t j = 0; j < options.size(); ++j) {
        is_beaten |= expected[j] == 0 && dominates(options[j], options[i]);
      }
      if (!is_beaten) {
        front.push_back(i);
      }
    }
    for (const size_t i : front) {
      expected[i] = layer;
    }
    num_left -= static_cast<int>(front.size());
  }
  EXPECT_EQ(ParetoLayers(options), expected);
}

}  // namespace
}  // namespace lastflop
