#include "stats/multiplicity.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"
#include "stats/judge.h"

namespace lastflop {
namespace {

FamilyMember Member(double log_ratio, double standard_error, int degrees_of_freedom = 1000) {
  return {.log_ratio = log_ratio,
          .uncertainty = Uncertainty{.launch_standard_error = standard_error,
                                     .launch_degrees_of_freedom = degrees_of_freedom}};
}

TEST(JudgeFamilyTest, OneMemberIsJudgedAsIfAlone) {
  const std::vector<FamilyMember> family = {Member(0.1, 0.01)};
  const FamilyJudgement judgement = JudgeFamily(family, 0.95, 0.01);
  EXPECT_DOUBLE_EQ(judgement.confidence, 0.95);
  EXPECT_EQ(judgement.verdicts[0].effect, Effect::kFaster);
  EXPECT_NEAR(judgement.verdicts[0].interval->low, std::exp(0.1 - 1.962 * 0.01), 1e-5);
}

TEST(JudgeFamilyTest, TheLuckiestOfManyIsNoFinding) {
  // 2.2 standard errors are a finding alone, and expected once among 40.
  std::vector<FamilyMember> family = {Member(0.022, 0.01)};
  EXPECT_EQ(JudgeFamily(family, 0.95, 0).verdicts[0].effect, Effect::kFaster);
  family.resize(40, Member(0.001, 0.01));
  const FamilyJudgement judgement = JudgeFamily(family, 0.95, 0);
  EXPECT_EQ(judgement.verdicts[0].effect, Effect::kUndecided);
  EXPECT_EQ(judgement.num_decided, 0);
  EXPECT_NEAR(judgement.confidence, 1 - 0.05 / 40, 1e-12);
}

TEST(JudgeFamilyTest, ManyFindingsMakeTheNextOneEasier) {
  // 3.3 standard errors, tail 0.001: too little alone among 100, enough beside 30 clear ones.
  std::vector<FamilyMember> family(100, Member(0, 0.01));
  family[0] = Member(0.033, 0.01);
  EXPECT_EQ(JudgeFamily(family, 0.95, 0).verdicts[0].effect, Effect::kUndecided);
  std::fill(family.begin() + 1, family.begin() + 31, Member(-0.2, 0.01));
  const FamilyJudgement judgement = JudgeFamily(family, 0.95, 0);
  EXPECT_EQ(judgement.verdicts[0].effect, Effect::kFaster);
  EXPECT_EQ(judgement.num_decided, 31);
  EXPECT_NEAR(judgement.confidence, 1 - 0.05 * 31 / 100, 1e-12);
}

TEST(JudgeFamilyTest, EveryEffectIsThatOfTheIntervalBesideIt) {
  std::vector<FamilyMember> family;
  for (int i = 0; i < 60; ++i) {
    family.push_back(Member(0.002 * i - 0.06, 0.0001 * (1 + i * 7 % 60), 1 + i % 5));
  }
  family.emplace_back();  // Without an interval.
  const FamilyJudgement judgement = JudgeFamily(family, 0.95, 0.01);
  ASSERT_EQ(judgement.verdicts.size(), family.size());
  for (size_t i = 0; i + 1 < family.size(); ++i) {
    const FamilyVerdict& verdict = judgement.verdicts[i];
    EXPECT_EQ(verdict.effect, JudgeEffect(Interval{.low = std::log(verdict.interval->low),
                                                   .high = std::log(verdict.interval->high)},
                                          0.01));
  }
  EXPECT_GT(judgement.num_decided, 10);
  EXPECT_EQ(judgement.verdicts.back().effect, Effect::kUndecided);
  EXPECT_FALSE(judgement.verdicts.back().interval.has_value());
}

TEST(JudgeFamilyTest, SameIsADecisionToo) {
  const std::vector<FamilyMember> family = {Member(0.001, 0.001), Member(0.001, 0.5)};
  const FamilyJudgement judgement = JudgeFamily(family, 0.95, 0.01);
  EXPECT_EQ(judgement.verdicts[0].effect, Effect::kSame);
  EXPECT_EQ(judgement.verdicts[1].effect, Effect::kUndecided);
}

TEST(JudgeFamilyTest, ALookThatSpentLittleOfTheErrorNeedsMore) {
  FamilyMember early = Member(0.025, 0.01);
  EXPECT_EQ(JudgeFamily({&early, 1}, 0.95, 0).verdicts[0].effect, Effect::kFaster);
  early.uncertainty->look_share = 0.1;
  EXPECT_EQ(JudgeFamily({&early, 1}, 0.95, 0).verdicts[0].effect, Effect::kUndecided);
}

TEST(JudgeFamilyTest, NoMembersGiveNoVerdicts) {
  EXPECT_TRUE(JudgeFamily({}, 0.95, 0.01).verdicts.empty());
}

TEST(JudgeFamilyTest, AWholeFamilyOfNothingIsRarelyWrongAnywhere) {
  uint64_t counter = 0;
  const auto uniform = [&] {
    return (static_cast<double>(CounterRandom(3, 0, counter++) >> 11) + 0.5) * 0x1p-53;
  };
  const auto normal = [&] {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  };
  int num_wrong = 0;
  constexpr int kNumFamilies = 2000;
  for (int i = 0; i < kNumFamilies; ++i) {
    std::vector<FamilyMember> family;
    for (int j = 0; j < 20; ++j) {
      // Three launches without an effect: their mean and standard error.
      const double a = normal(), b = normal(), c = normal();
      const double mean = (a + b + c) / 3;
      const double squares = a * a + b * b + c * c - 3 * mean * mean;
      family.push_back(Member(mean, std::sqrt(squares / 6), 2));
    }
    num_wrong += JudgeFamily(family, 0.95, 0).num_decided > 0 ? 1 : 0;
  }
  RecordProperty("families_with_a_false_difference", num_wrong);
  EXPECT_LE(num_wrong, kNumFamilies * 6 / 100);
  EXPECT_GE(num_wrong, kNumFamilies * 3 / 100);  // And nothing is given away.
}

}  // namespace
}  // namespace lastflop
