#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/campaign_results.h"
#include "planner/breakdown.h"
#include "planner/ceiling.h"
#include "planner/choice.h"
#include "planner/expected_steps.h"
#include "planner/pool.h"
#include "planner/prediction.h"
#include "planner/ranking.h"
#include "stats/estimate.h"
#include "stats/multiplicity.h"

namespace lastflop {

// One intervention against the baseline at one point.
struct Comparison {
  // Set when both were measured here. Without a baseline there is no speedup.
  std::optional<Estimate> estimate;
  FamilyVerdict verdict;
};

// What all interventions of a campaign are judged with.
struct RankingContext {
  const CampaignResults& results;  // Outlives this.
  std::vector<PooledTrial> trials;
  // One per point of the campaign, in its order.
  std::vector<const PooledTrial*> baseline_trials;  // nullptr: the campaign has none.
  std::vector<BaselinePoint> baseline;
  std::vector<std::optional<StepBreakdown>> breakdowns;
  // Of predictions: with every op at the upper end of its interval, which alone may rule a claim
  // out. Empty where breakdowns are measured.
  std::vector<std::optional<StepBreakdown>> slowest_breakdowns;
  // One per intervention of the campaign, in its order.
  std::vector<SweepChoice> choices;
  std::vector<std::vector<Comparison>> comparisons;  // [intervention][point], judged as one family.
  // The same, of what is not measured but predicted; empty where nothing is.
  std::vector<std::vector<PredictedTrial>> predictions;

  double interval_confidence = 0.95;  // FamilyJudgement::confidence.

  const Campaign& campaign() const { return results.campaign; }
};

// Sets which point a BaselinePoint or a PointResult is of.
template <typename T>
void NamePoint(const Campaign& campaign, int point_index, T& point) {
  const Point& asked = campaign.points[static_cast<size_t>(point_index)];
  point.point_index = point_index;
  point.label = asked.Label();
  point.phase = asked.phase;
  point.batch = asked.batch;
  point.context = asked.context;
  point.time_share = asked.time_share;
  point.routing = asked.routing.LabelWithSeed();
}

// Which point it is, without a figure.
BaselinePoint NameBaselinePoint(const Campaign& campaign, int point_index);

RankingContext MakeContext(const CampaignResults& results);

// As MakeContext, but nothing is judged: every effect is undecided and has no interval.
RankingContext MakeUnjudgedContext(const CampaignResults& results);

// Judges the comparisons of all of them as one family, at the first one's confidence.
void JudgeTogether(std::span<RankingContext* const> contexts);

// Intervention number `index` of the campaign, judged at every point and in the mix: everything but
// its place.
//
// The mix needs every point; with `switchable: per_batch` the intervention is off (exactly 1) where
// it is not proven faster, and where it cannot run at all though the baseline can.
RankedIntervention JudgeIntervention(const RankingContext& context, size_t index,
                                     ExpectedSteps& steps);

// The speedup that an expectation may count on: the estimate where an effect is proven, else 1.
double CountedSpeedup(const RankedIntervention& intervention);

// What today's GPU-hours shrink by: the counted speedup over how many times as many GPUs it takes.
double CountedPerDevice(const RankedIntervention& intervention);

}  // namespace lastflop
