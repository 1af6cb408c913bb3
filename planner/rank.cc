#include "planner/rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/answer.h"
#include "planner/context.h"
#include "planner/economics.h"
#include "planner/sequence.h"
#include "planner/surroundings.h"

namespace lastflop {
namespace {

enum class Group { kPlaced, kApart, kUnplaced };

Group GroupOf(const RankedIntervention& one) {
  if (!one.mix.has_value()) {
    return Group::kUnplaced;
  }
  return one.ranks_apart ? Group::kApart : Group::kPlaced;
}

// What a ranking without economics.gpu_hours can be ordered by.
RankingOrder UsedOrder(RankingOrder asked, const Economics& economics) {
  return asked == RankingOrder::kNetGain && !economics.gpu_hours.has_value() ? RankingOrder::kImpact
                                                                             : asked;
}

// `worth` an hour; work that takes no time is worth more than any that does.
double PerHour(double worth, double hours) {
  if (hours > 0) {
    return worth / hours;
  }
  return worth == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), worth);
}

double KeyOf(const RankedIntervention& one, RankingOrder order) {
  const double counted = CountedSpeedup(one);
  switch (order) {
    case RankingOrder::kNetGain:
      return one.gain.has_value() ? one.gain->net_gpu_hours : counted;
    case RankingOrder::kImpact:
      return counted;
    case RankingOrder::kPerHour:
      return PerHour(
          one.gain.has_value() ? one.gain->net_gpu_hours : ExpectedSaving(counted, one.risk),
          one.effort.likely_hours);
  }
  return 0;
}

// Larger is better for the first two, smaller for the rest.
bool ComesBefore(const RankedIntervention& a, const RankedIntervention& b, RankingOrder order) {
  const Group group_a = GroupOf(a);
  const Group group_b = GroupOf(b);
  if (group_a != group_b) {
    return group_a < group_b;
  }
  if (group_a == Group::kUnplaced) {
    return std::tie(a.standing, a.id) < std::tie(b.standing, b.id);
  }
  const double key_a = KeyOf(a, order);
  const double key_b = KeyOf(b, order);
  if (key_a != key_b) {
    return key_a > key_b;
  }
  const double counted_a = CountedSpeedup(a);
  const double counted_b = CountedSpeedup(b);
  if (counted_a != counted_b) {
    return counted_a > counted_b;
  }
  return std::tie(a.effort.likely_hours, a.tier, a.id) <
         std::tie(b.effort.likely_hours, b.tier, b.id);
}

void SetPlaces(std::vector<RankedIntervention>& interventions) {
  int place = 0;
  for (RankedIntervention& one : interventions) {
    if (GroupOf(one) == Group::kPlaced) {
      one.place = ++place;
    }
  }
}

std::string OrderNote(RankingOrder asked, RankingOrder used) {
  std::string note;
  switch (used) {
    case RankingOrder::kNetGain:
      note = "by expected net gain in GPU-hours";
      break;
    case RankingOrder::kImpact:
      note = "by impact (speedup in the mix)";
      break;
    case RankingOrder::kPerHour:
      note = "by gain per engineer-hour";
      break;
  }
  if (asked != used) {
    absl::StrAppend(&note, ", as economics.gpu_hours is not given");
  }
  return absl::StrCat(note,
                      "; a speedup that is not proven counts as 1; ties: larger impact, less "
                      "effort, lower tier, id");
}

}  // namespace

Ranking MakeRanking(const CampaignResults& results, const RankOptions& options) {
  const RankingContext context = MakeContext(results);
  const Campaign& campaign = results.campaign;
  Ranking ranking;
  ranking.campaign_id = results.campaign_id;
  ranking.campaign_name = campaign.name;
  ranking.question = campaign.question;
  ranking.state = results.state;
  ranking.order = UsedOrder(options.order, campaign.economics);
  ranking.order_note = OrderNote(options.order, ranking.order);
  ranking.confidence = campaign.measure.confidence;
  ranking.interval_confidence = context.interval_confidence;
  ranking.min_effect = campaign.measure.min_effect;
  ranking.baseline = context.baseline;
  ranking.breakdown = MixBreakdown(ranking.baseline, ranking.breakdown_step_us);
  ExpectedLoads loads;
  for (size_t i = 0; i < campaign.interventions.size(); ++i) {
    ranking.interventions.push_back(JudgeIntervention(context, i, loads));
  }
  std::stable_sort(ranking.interventions.begin(), ranking.interventions.end(),
                   [&ranking](const RankedIntervention& a, const RankedIntervention& b) {
                     return ComesBefore(a, b, ranking.order);
                   });
  SetPlaces(ranking.interventions);
  Sequence sequence = RecommendSequence(ranking.interventions, campaign);
  ranking.sequence = std::move(sequence.steps);
  ranking.sequence_note = std::move(sequence.note);
  ranking.environment = EnvironmentOf(context);
  ranking.assumptions = AssumptionsOf(campaign);
  ranking.warnings = WarningsOf(context);
  ranking.answer = AnswerOf(ranking);
  return ranking;
}

std::string BestSoFar(const CampaignResults& results) {
  struct Sums {
    double baseline_us = 0;
    double variant_us = 0;
    bool is_valid = true;
  };
  std::unordered_map<std::string, Sums> sums;
  for (const AttemptRecord& attempt : results.attempts) {
    if (!attempt.authoritative) {
      continue;
    }
    Sums& sum = sums[attempt.result.trial_id];
    sum.is_valid &= !attempt.result.failure.has_value();
    for (const PairSample& sample : attempt.result.samples) {
      if (!sample.pair.throttled) {
        sum.baseline_us += sample.pair.baseline_us;
        sum.variant_us += sample.pair.variant_us;
      }
    }
  }
  double best = 1 + results.campaign.measure.min_effect;
  std::string text;
  for (const TrialRecord& trial : results.trials) {
    const auto found = sums.find(trial.spec.trial_id);
    if (found == sums.end() || trial.spec.intervention_id == kBaselineId ||
        !found->second.is_valid || !(found->second.variant_us > 0)) {
      continue;
    }
    const double speedup = found->second.baseline_us / found->second.variant_us;
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (std::isfinite(speedup) && speedup > best && point < results.campaign.points.size()) {
      best = speedup;
      text = absl::StrFormat("%s %.2fx at %s", trial.spec.intervention_id, speedup,
                             results.campaign.points[point].Label());
    }
  }
  return text;
}

}  // namespace lastflop
