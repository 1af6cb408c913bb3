#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "planner/rank.h"
#include "planner/ranking.h"

// All rounds of a campaign, judged as one family.
namespace lastflop {

inline constexpr char kStackId[] = "stack";  // Of trials whose role is `stack`.

struct JudgedRound {
  int round = 1;
  // Against the baseline of the round. What was confirmed has the figures of its confirmation.
  Ranking ranking;
  // What the confirmed ones were selected on, by id: the figures of the comparison.
  std::map<std::string, RankedIntervention> selected;
};

// A comparison of stacks at every point: exactly 1 where both are the same plan.
struct StackFigures {
  std::vector<std::optional<SpeedupFigure>> points;  // Absent: `reason` says why.
  std::string reason;
};

struct JudgedRounds {
  std::vector<JudgedRound> rounds;  // From 1; at least one.
  std::optional<StackFigures> stack;
  std::map<std::string, StackFigures> left_out;  // By the id of what the smaller stack lacks.
};

// Interventions x points x rounds, confirmations, stacks: every comparison counts in the family.
JudgedRounds JudgeRounds(const CampaignResults& results, const RankOptions& options);

}  // namespace lastflop
