#include "planner/best_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/random.h"

namespace lastflop {
namespace {

double Uniform(uint64_t seed, uint64_t index) { return CounterUniform(seed, 1, index); }

// Some savings, costs, relations and clashes; the same for the same seed.
std::vector<SetCandidate> SomeCandidates(size_t count, size_t num_points, uint64_t seed) {
  std::vector<SetCandidate> candidates(count);
  uint64_t index = 0;
  for (SetCandidate& one : candidates) {
    for (size_t point = 0; point < num_points; ++point) {
      one.time_factors.push_back(0.7 + 0.4 * Uniform(seed, ++index));
    }
    one.cost = 60 * Uniform(seed, ++index);
    one.effort_hours = 1 + 40 * Uniform(seed, ++index);
  }
  const auto pick = [&] {
    return static_cast<size_t>(Uniform(seed, ++index) * static_cast<double>(count));
  };
  for (size_t i = 0; i < count / 3; ++i) {
    const size_t a = pick();
    const size_t b = pick();
    if (a == b) {
      continue;
    }
    if (i % 3 == 0) {
      candidates[std::max(a, b)].needs |= 1u << std::min(a, b);
    } else {
      uint32_t SetCandidate::*relation =
          i % 3 == 1 ? &SetCandidate::excludes : &SetCandidate::clashes;
      candidates[a].*relation |= 1u << b;
      candidates[b].*relation |= 1u << a;
    }
  }
  return candidates;
}

bool IsAllowed(const std::vector<SetCandidate>& candidates, const SetRules& rules, uint32_t set) {
  double hours = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((set >> i & 1) != 0) {
      hours += candidates[i].effort_hours;
      if ((candidates[i].needs & ~set) != 0 || (candidates[i].excludes & set) != 0) {
        return false;
      }
    }
  }
  return !rules.effort_hours.has_value() || hours <= *rules.effort_hours;
}

// The least time at a point over all ways to switch the members of `set` that clash.
double TimeAt(const std::vector<SetCandidate>& candidates, size_t point, uint32_t set) {
  double least = 1e9;
  for (uint32_t on = set;; on = (on - 1) & set) {
    double time = 1;
    bool is_allowed = true;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool is_on = (on >> i & 1) != 0;
      const bool can_switch = (candidates[i].clashes & set) != 0;
      is_allowed &= !is_on || (candidates[i].clashes & on) == 0;
      is_allowed &= is_on || (set >> i & 1) == 0 || can_switch;
      time *= is_on ? candidates[i].time_factors[point] : 1;
    }
    least = is_allowed ? std::min(least, time) : least;
    if (on == 0) {
      return least;
    }
  }
}

double GainByHand(const std::vector<SetCandidate>& candidates, const SetRules& rules,
                  uint32_t set) {
  double time = 0;
  double shares = 0;
  for (size_t point = 0; point < rules.time_shares.size(); ++point) {
    time += rules.time_shares[point] * TimeAt(candidates, point, set);
    shares += rules.time_shares[point];
  }
  double gain = rules.worth * (1 - time / shares);
  for (size_t i = 0; i < candidates.size(); ++i) {
    gain -= (set >> i & 1) != 0 ? candidates[i].cost : 0;
  }
  return gain;
}

TEST(FindBestSetTest, AgreesWithTryingEverySet) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const std::vector<SetCandidate> candidates = SomeCandidates(9, 3, seed);
    const SetRules rules{.time_shares = {0.2, 0.5, 0.3}, .worth = 1000, .effort_hours = 90};
    double best = 0;
    for (uint32_t set = 1; set < 1u << candidates.size(); ++set) {
      if (IsAllowed(candidates, rules, set)) {
        best = std::max(best, GainByHand(candidates, rules, set));
      }
    }
    const BestSet found = FindBestSet(candidates, rules);
    EXPECT_NEAR(found.gain, best, 1e-9) << seed;
    EXPECT_TRUE(IsAllowed(candidates, rules, found.set)) << seed;
  }
}

TEST(FindBestSetTest, MultipliesAtEachPointAndThenMixes) {
  // Each halves another half of the time: together half of it is gone, not a product of mixes.
  const std::vector<SetCandidate> candidates = {{.time_factors = {0.5, 1}},
                                                {.time_factors = {1, 0.5}}};
  const BestSet best = FindBestSet(candidates, {.time_shares = {1, 1}, .worth = 1});
  EXPECT_EQ(best.set, 3u);
  EXPECT_DOUBLE_EQ(best.gain, 0.5);
}

TEST(FindBestSetTest, TakesTurnsWhereTwoClash) {
  const std::vector<SetCandidate> candidates = {{.time_factors = {0.5, 0.9}, .clashes = 2},
                                                {.time_factors = {0.8, 0.6}, .clashes = 1}};
  const BestSet best = FindBestSet(candidates, {.time_shares = {0.5, 0.5}, .worth = 1});
  EXPECT_EQ(best.set, 3u);
  EXPECT_EQ(best.on, (std::vector<uint32_t>{1, 2}));
  EXPECT_DOUBLE_EQ(best.gain, 1 - 0.5 * 0.5 - 0.5 * 0.6);
}

TEST(FindBestSetTest, TiesGoToLessEffortAndThenToTheEarlier) {
  const std::vector<SetCandidate> candidates = {
      {.time_factors = {0.5}, .effort_hours = 2, .excludes = 6},
      {.time_factors = {0.5}, .effort_hours = 1, .excludes = 5},
      {.time_factors = {0.5}, .effort_hours = 1, .excludes = 3}};
  EXPECT_EQ(FindBestSet(candidates, {.time_shares = {1}}).set, 2u);
}

TEST(FindBestSetTest, BuildsNothingThatDoesNotPay) {
  EXPECT_EQ(FindBestSet(std::vector<SetCandidate>{{.time_factors = {0.9}, .cost = 0.2}},
                        {.time_shares = {1}})
                .set,
            0u);
  EXPECT_EQ(FindBestSet({}, {.time_shares = {1}}).set, 0u);
}

TEST(FindBestSetTest, LosesNoTimeOverWhatCostsMoreThanItSaves) {
  std::vector<SetCandidate> candidates(kMostSetCandidates,
                                       {.time_factors = {0.95, 0.9}, .cost = 0.2});
  candidates[3].cost = 0.01;
  candidates[4].needs = 1u << 5;  // Neither of them pays for both.
  EXPECT_EQ(FindBestSet(candidates, {.time_shares = {1, 1}}).set, 1u << 3);
}

TEST(FindBestSetTest, TwentyFiveCandidatesAreSearchedExactly) {
  const std::vector<SetCandidate> candidates = SomeCandidates(kMostSetCandidates, 5, 7);
  const SetRules rules{
      .time_shares = {0.1, 0.2, 0.3, 0.2, 0.2}, .worth = 1000, .effort_hours = 150};
  const BestSet best = FindBestSet(candidates, rules);
  EXPECT_TRUE(IsAllowed(candidates, rules, best.set));
  // No neighbour is better: one more, one less, or one for another.
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (size_t j = i; j < candidates.size(); ++j) {
      const uint32_t set = best.set ^ (1u << i) ^ (i == j ? 0 : 1u << j);
      if (IsAllowed(candidates, rules, set)) {
        EXPECT_LE(EvaluateSet(candidates, rules, set).gain, best.gain + 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace lastflop
