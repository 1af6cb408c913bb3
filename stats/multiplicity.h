#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/words.h"
#include "stats/estimate.h"

// Many trials are judged at once, and the best-looking of many is often luck. All interventions at
// all points in all rounds are one family; its decisions are Benjamini and Hochberg's (1995), its
// intervals Benjamini and Yekutieli's (2005). docs/measuring.md, "One family".
namespace lastflop {

// One trial, as much of it as its judgement needs.
struct FamilyMember {
  double log_ratio = 0;
  std::optional<Uncertainty> uncertainty{};  // Absent: it counts in the family, and is undecided.
};

FamilyMember MemberOf(const Estimate& estimate);

struct FamilyVerdict {
  Effect effect = Effect::kUndecided;
  std::optional<Interval> interval{};  // Of the speedup, at FamilyJudgement::confidence.
};

struct FamilyJudgement {
  // Of every interval below; a single trial's confidence, or more where the family has more
  // members than decisions.
  double confidence = 0;
  int num_decided = 0;                    // Verdicts other than undecided.
  std::vector<FamilyVerdict> verdicts{};  // In the order of the members.
};

// Judges all members such that, of the verdicts faster, slower and same, a share of at most
// 1 - confidence is wrong on average; where no effect exists at all, that is the chance of any
// wrong one. Each effect is that of the interval beside it.
FamilyJudgement JudgeFamily(std::span<const FamilyMember> members, double confidence,
                            double min_effect);

}  // namespace lastflop
