#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/claim.h"
#include "planner/judged_point.h"
#include "planner/mix.h"
#include "planner/part_claim.h"

namespace lastflop {
namespace {

std::string NoResult(const PointResult& result) {
  return absl::StrCat("no result at ", result.label, ": ", ToWord(result.standing),
                      result.reason.empty() ? "" : ", ", result.reason);
}

// What stands against a claim about the whole step.
void AddStepEvidence(const std::vector<const JudgedPoint*>& claimed, ClaimEvidence& evidence) {
  std::vector<MixPart> parts;
  for (const JudgedPoint* point : claimed) {
    if (!point->result.speedup.has_value()) {
      evidence.missing = NoResult(point->result);
      return;
    }
    if (point->result.standing == Standing::kPredicted) {
      // A model refutes and confirms nothing; only a ceiling can rule a claim out.
      evidence.missing = absl::StrFormat("predicted %.3fx at %s, not measured",
                                         point->result.speedup->estimate, point->result.label);
      return;
    }
    parts.push_back({point->result.time_share, *point->result.speedup});
  }
  if (const std::optional<SpeedupFigure> mix = MixSpeedup(parts)) {
    evidence.estimate = mix->estimate;
    evidence.low = mix->low;
    evidence.high = mix->high;
  } else {
    evidence.missing = "the claimed points have no share of the time";
  }
}

// What stands against a claim about a part of the step: never the step's own figure.
void AddPartEvidence(const RankingContext& context, const std::vector<const JudgedPoint*>& claimed,
                     const std::string& of, ClaimEvidence& evidence) {
  std::vector<MixPart> parts;
  for (const JudgedPoint* point : claimed) {
    if (!point->result.speedup.has_value()) {
      evidence.missing = NoResult(point->result);
      return;
    }
    if (point->result.standing == Standing::kPredicted) {
      evidence.missing =
          absl::StrCat(point->result.label, ": predicted, and no time of ", of, " measured");
      return;
    }
    const PooledTrial* baseline =
        context.baseline_trials[static_cast<size_t>(point->result.point_index)];
    PartSpeedup part;
    if (baseline != nullptr) {
      part = ComparePart(*baseline, point->trial, of);
    }
    if (!part.estimate.has_value()) {
      evidence.missing = absl::StrCat(point->result.label, ": ",
                                      part.missing.empty() ? "no baseline" : part.missing);
      return;
    }
    parts.push_back({point->result.time_share,
                     {.estimate = *part.estimate, .low = part.low, .high = part.high}});
  }
  if (const std::optional<SpeedupFigure> mix = MixSpeedup(parts)) {
    evidence.estimate = mix->estimate;
    evidence.low = mix->low;
    evidence.high = mix->high;
  }
}

}  // namespace

void SetClaim(const RankingContext& context, std::span<const JudgedPoint> points,
              RankedIntervention& ranked) {
  if (!ranked.claim.has_value()) {
    return;
  }
  ClaimEvidence evidence;
  evidence.min_effect = context.campaign().measure.min_effect;
  std::vector<const JudgedPoint*> claimed;
  std::vector<MixPart> ceilings;
  std::vector<std::string> arithmetic;
  for (const JudgedPoint& point : points) {
    if (!ranked.claim->IsOfBatch(point.result.batch)) {
      continue;
    }
    claimed.push_back(&point);
    if (point.claim_ceiling.speedup.has_value()) {
      ceilings.push_back({point.result.time_share,
                          {.estimate = *point.claim_ceiling.speedup, .low = {}, .high = {}}});
      arithmetic.push_back(absl::StrCat(point.result.label, ": ", point.claim_ceiling.arithmetic));
      evidence.is_ceiling_predicted |=
          context.baseline[static_cast<size_t>(point.result.point_index)].standing ==
          Standing::kPredicted;
    }
  }
  if (claimed.empty()) {
    evidence.missing = "the campaign has no point with a batch in the claimed range";
  } else if (ranked.claim->of == "step") {
    AddStepEvidence(claimed, evidence);
  } else {
    AddPartEvidence(context, claimed, ranked.claim->of, evidence);
  }
  if (!claimed.empty() && ceilings.size() == claimed.size()) {
    if (const std::optional<SpeedupFigure> mix = MixSpeedup(ceilings)) {
      evidence.ceiling = mix->estimate;
      evidence.ceiling_arithmetic = absl::StrJoin(arithmetic, "; ");
    }
  }
  const ClaimJudgement judgement = JudgeClaim(ranked.claim, evidence);
  ranked.claim_verdict = judgement.verdict;
  ranked.claim_reason = judgement.reason;
}

}  // namespace lastflop
