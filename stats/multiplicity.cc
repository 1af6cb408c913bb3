#include "stats/multiplicity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "stats/distributions.h"
#include "stats/judge.h"

namespace lastflop {
namespace {

// The least error 1 - confidence at which the member's own interval is decided: where its edge
// reaches the nearest edge of the band.
double DecisionTail(const FamilyMember& member, double min_effect) {
  const double distance = std::abs(std::abs(member.log_ratio) - std::log1p(min_effect));
  if (!member.uncertainty || distance == 0) {
    return 1;
  }
  const auto tail = [distance](double standard_error, int degrees_of_freedom) {
    return standard_error > 0 ? StudentTwoSidedTail(distance / standard_error, degrees_of_freedom)
                              : 0;
  };
  const Uncertainty& from = *member.uncertainty;
  const double widest = std::max(tail(from.launch_standard_error, from.launch_degrees_of_freedom),
                                 tail(from.draw_standard_error, from.draw_degrees_of_freedom));
  return std::min(1.0, widest / from.look_share);
}

// Benjamini and Hochberg's step-up: the largest k for which k members decide at k / m of the error.
size_t NumDecided(std::span<const FamilyMember> members, double error, double min_effect) {
  std::vector<double> tails;
  tails.reserve(members.size());
  for (const FamilyMember& member : members) {
    tails.push_back(DecisionTail(member, min_effect));
  }
  std::ranges::sort(tails);
  for (size_t k = tails.size(); k > 0; --k) {
    if (tails[k - 1] <= error * static_cast<double>(k) / static_cast<double>(tails.size())) {
      return k;
    }
  }
  return 0;
}

FamilyVerdict Judge(const FamilyMember& member, double confidence, double min_effect) {
  FamilyVerdict verdict;
  if (member.uncertainty) {
    verdict.interval = SpeedupInterval(member.log_ratio, *member.uncertainty, confidence);
  }
  if (verdict.interval) {
    verdict.effect = JudgeEffect(
        {.low = std::log(verdict.interval->low), .high = std::log(verdict.interval->high)},
        min_effect);
  }
  return verdict;
}

}  // namespace

FamilyMember MemberOf(const Estimate& estimate) {
  return {.log_ratio = estimate.log_ratio, .uncertainty = estimate.uncertainty};
}

FamilyJudgement JudgeFamily(std::span<const FamilyMember> members, double confidence,
                            double min_effect) {
  const double error = 1 - confidence;
  FamilyJudgement judgement{.confidence = confidence};
  if (members.empty()) {
    return judgement;
  }
  // Without a decision the next one would have to be made at 1 / m of the error.
  const size_t num_decided = std::max<size_t>(1, NumDecided(members, error, min_effect));
  judgement.confidence =
      1 - error * static_cast<double>(num_decided) / static_cast<double>(members.size());
  for (const FamilyMember& member : members) {
    judgement.verdicts.push_back(Judge(member, judgement.confidence, min_effect));
    judgement.num_decided += judgement.verdicts.back().effect != Effect::kUndecided ? 1 : 0;
  }
  return judgement;
}

}  // namespace lastflop
