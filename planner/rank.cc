#include "planner/rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/answer.h"
#include "planner/context.h"
#include "planner/economics.h"
#include "planner/finish_ranking.h"
#include "planner/pareto.h"
#include "planner/predict_measured.h"
#include "planner/rank_rounds.h"
#include "planner/rounds.h"
#include "planner/sequence.h"
#include "planner/stability.h"
#include "planner/surroundings.h"
#include "stats/estimate.h"
#include "stats/judge.h"

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

double KeyOf(const RankedIntervention& one, RankingOrder order, const Economics& economics) {
  if (order == RankingOrder::kPareto) {
    return one.pareto_layer.has_value() ? -*one.pareto_layer : std::numeric_limits<int>::min();
  }
  return RankingKey(order, CountedPerDevice(one), one.whole_effort_hours, one.whole_chance,
                    economics);
}

// Among those with a place: what nothing else beats in both effort and speedup, and so on.
void SetParetoLayers(std::vector<RankedIntervention>& interventions) {
  std::vector<CostAndSpeedup> options;
  std::vector<RankedIntervention*> placed;
  for (RankedIntervention& one : interventions) {
    if (GroupOf(one) == Group::kPlaced) {
      options.push_back({one.whole_effort_hours, CountedPerDevice(one)});
      placed.push_back(&one);
    }
  }
  const std::vector<int> layers = ParetoLayers(options);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] > 0) {
      placed[i]->pareto_layer = layers[i];
    }
  }
}

// Larger is better for the first two, smaller for the rest.
bool ComesBefore(const RankedIntervention& a, const RankedIntervention& b, RankingOrder order,
                 const Economics& economics) {
  const Group group_a = GroupOf(a);
  const Group group_b = GroupOf(b);
  if (group_a != group_b) {
    return group_a < group_b;
  }
  if (group_a == Group::kUnplaced) {
    return std::tie(a.standing, a.id) < std::tie(b.standing, b.id);
  }
  const double key_a = KeyOf(a, order, economics);
  const double key_b = KeyOf(b, order, economics);
  if (key_a != key_b) {
    return key_a > key_b;
  }
  if (order == RankingOrder::kPareto && a.whole_effort_hours != b.whole_effort_hours) {
    return a.whole_effort_hours < b.whole_effort_hours;
  }
  const double counted_a = CountedPerDevice(a);
  const double counted_b = CountedPerDevice(b);
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

std::string OrderNote(RankingOrder asked, RankingOrder used,
                      const std::vector<RankedIntervention>& interventions) {
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
    case RankingOrder::kPareto:
      note =
          "the Pareto front of effort and speedup first, then the front of the rest; in a front "
          "the least effort first";
      break;
  }
  if (asked != used) {
    absl::StrAppend(&note, ", as economics.gpu_hours is not given");
  }
  const bool have_same_devices =
      std::all_of(interventions.begin(), interventions.end(),
                  [](const RankedIntervention& one) { return one.devices_text.empty(); });
  if (!have_same_devices) {
    absl::StrAppend(&note, "; a speedup on more GPUs counts over how many times as many");
  }
  return absl::StrCat(note,
                      "; a speedup that is not proven counts as 1; ties: larger impact, less "
                      "effort, lower tier, id");
}

// Progress is made at every report, while something is measured.
constexpr size_t kMostCandidates = 8;

struct Candidate {
  const TrialRecord* trial = nullptr;  // Outlives this.
  std::vector<Pair> pairs;
  double speedup = 0;  // Ratio of means.
};

// Stacks and what is left of them are compared too, but are no interventions.
bool ComparesIntervention(const TrialSpec& spec) {
  return spec.intervention_id != kBaselineId &&
         (spec.role == TrialRole::kCompare || spec.role == TrialRole::kConfirm);
}

// Trials, finished or not, that look faster than the baseline.
std::vector<Candidate> CandidatesOf(const CampaignResults& results) {
  std::unordered_map<std::string, std::vector<Pair>> pairs_of;
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempt.authoritative && !attempt.result.failure.has_value()) {
      for (const PairSample& sample : attempt.result.samples) {
        pairs_of[attempt.result.trial_id].push_back(sample.pair);
      }
    }
  }
  std::vector<Candidate> candidates;
  for (const TrialRecord& trial : results.trials) {
    const auto found = pairs_of.find(trial.spec.trial_id);
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (found == pairs_of.end() || !ComparesIntervention(trial.spec) || trial.failure.has_value() ||
        point >= results.campaign.points.size()) {
      continue;
    }
    double baseline_us = 0;
    double variant_us = 0;
    for (const Pair& pair : found->second) {
      baseline_us += pair.baseline_us;
      variant_us += pair.variant_us;
    }
    if (baseline_us > variant_us * (1 + results.campaign.measure.min_effect)) {
      candidates.push_back({&trial, std::move(found->second), baseline_us / variant_us});
    }
  }
  return candidates;
}

// At a confidence that holds for all comparisons together: what passes, a ranking calls faster too.
bool IsProvenFaster(const std::vector<Pair>& pairs, const MeasureOptions& measure,
                    double num_compared) {
  EstimateOptions options;
  options.confidence = 1 - (1 - measure.confidence) / std::max(1.0, num_compared);
  options.half_width = measure.half_width;
  const absl::StatusOr<Estimate> estimate = EstimateSpeedup(pairs, options);
  return estimate.ok() && JudgeEffect(*estimate, measure.min_effect) == Effect::kFaster;
}

// A measurement above its ceiling says that the breakdown or a floor is wrong; what else rests on
// them is in doubt too.
void WarnOfBrokenCeilings(Ranking& ranking) {
  for (const RankedIntervention& one : ranking.interventions) {
    for (const PointResult& point : one.points) {
      if (point.standing == Standing::kMeasured && point.ceiling.has_value() &&
          point.speedup.has_value() && point.speedup->low.value_or(0) > *point.ceiling) {
        ranking.warnings.push_back(absl::StrFormat(
            "%s at %s: measured at least %.3fx, above its ceiling of %.3fx: the breakdown or a "
            "floor is off, and what was left out because of one may deserve a trial (--no-prune)",
            one.id, point.label, *point.speedup->low, *point.ceiling));
      }
    }
  }
}

}  // namespace

Ranking MakeRanking(const CampaignResults& results, const RankOptions& options) {
  if (HasRounds(results) || results.campaign.budget.rounds > 1) {
    return RankRounds(results, options);
  }
  ExpectedSteps steps(results.campaign, results.machine);
  return RankContext(MakeContext(results), steps, options);
}

Ranking RankContext(const RankingContext& context, ExpectedSteps& steps,
                    const RankOptions& options) {
  const CampaignResults& results = context.results;
  const Campaign& campaign = results.campaign;
  Ranking ranking;
  ranking.campaign_id = results.campaign_id;
  ranking.campaign_name = campaign.name;
  ranking.question = campaign.question;
  ranking.state = results.state;
  ranking.order = UsedOrder(options.order, campaign.economics);
  const bool is_predicted = std::any_of(
      context.baseline.begin(), context.baseline.end(),
      [](const BaselinePoint& point) { return point.standing == Standing::kPredicted; });
  if (!is_predicted) {
    ranking.confidence = campaign.measure.confidence;
    ranking.interval_confidence = context.interval_confidence;
  }
  ranking.min_effect = campaign.measure.min_effect;
  ranking.baseline = context.baseline;
  ranking.breakdown = MixBreakdown(ranking.baseline, ranking.breakdown_step_us);
  for (size_t i = 0; i < campaign.interventions.size(); ++i) {
    ranking.interventions.push_back(JudgeIntervention(context, i, steps));
  }
  ranking.order_note = OrderNote(options.order, ranking.order, ranking.interventions);
  SetParetoLayers(ranking.interventions);
  std::stable_sort(ranking.interventions.begin(), ranking.interventions.end(),
                   [&](const RankedIntervention& a, const RankedIntervention& b) {
                     return ComesBefore(a, b, ranking.order, campaign.economics);
                   });
  SetPlaces(ranking.interventions);
  SetStability(campaign,
               {.order = ranking.order, .interval_confidence = context.interval_confidence},
               ranking.interventions);
  Sequence sequence = RecommendSequence(ranking.interventions, campaign);
  ranking.sequence = std::move(sequence.steps);
  ranking.sequence_note = std::move(sequence.note);
  ranking.sequence_net_gpu_hours = sequence.net_gpu_hours;
  ranking.environment = EnvironmentOf(context);
  ranking.assumptions = AssumptionsOf(campaign);
  ranking.warnings = WarningsOf(context);
  WarnOfBrokenCeilings(ranking);
  PredictMeasured(context, options.imported, ranking);
  ranking.answer = AnswerOf(ranking);
  return ranking;
}

std::string BestSoFar(const CampaignResults& results) {
  std::vector<Candidate> candidates = CandidatesOf(results);
  const auto num_compared = static_cast<double>(std::count_if(
      results.trials.begin(), results.trials.end(),
      [](const TrialRecord& trial) { return trial.spec.intervention_id != kBaselineId; }));
  const size_t num_tried = std::min(candidates.size(), kMostCandidates);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(num_tried),
                    candidates.end(),
                    [](const Candidate& a, const Candidate& b) { return a.speedup > b.speedup; });
  for (size_t i = 0; i < num_tried; ++i) {
    const Candidate& candidate = candidates[i];
    if (IsProvenFaster(candidate.pairs, results.campaign.measure, num_compared)) {
      const auto point = static_cast<size_t>(candidate.trial->spec.point_index);
      return absl::StrFormat("%s %.2fx at %s", candidate.trial->spec.intervention_id,
                             candidate.speedup, results.campaign.points[point].Label());
    }
  }
  return "";
}

}  // namespace lastflop
