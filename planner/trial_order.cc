#include "planner/trial_order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "planner/breakdown.h"
#include "planner/ceiling.h"
#include "planner/rounds.h"

namespace lastflop {
namespace {

// What the accepted attempts of a point's baseline tell.
struct PointCost {
  double attempt_s = 0;
  double setup_s = 0;
  std::optional<StepBreakdown> breakdown;
};

std::vector<PointCost> CostsOf(const CampaignResults& results, int round) {
  const MeasureOptions& measure = results.campaign.measure;
  const double max_s = std::chrono::duration<double>(measure.max_time).count() /
                       static_cast<double>(std::max<int64_t>(1, measure.launches));
  std::vector<PointCost> costs(results.campaign.points.size(), PointCost{.attempt_s = max_s});
  for (const TrialRecord& trial : results.trials) {
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (trial.spec.intervention_id != kBaselineId || trial.spec.role != TrialRole::kCompare ||
        trial.spec.round != round || point >= costs.size()) {
      continue;
    }
    std::vector<const AttemptResult*> attempts;
    for (const AttemptRecord& attempt : results.attempts) {
      if (attempt.authoritative && attempt.result.trial_id == trial.spec.trial_id &&
          !attempt.result.failure.has_value()) {
        attempts.push_back(&attempt.result);
        costs[point].setup_s = attempt.result.setup_s;
        costs[point].attempt_s =
            std::max({1e-3, attempt.result.sampling_s,
                      static_cast<double>(attempt.ended_at_ms - attempt.leased_at_ms) / 1000 -
                          attempt.result.setup_s});
      }
    }
    costs[point].breakdown = MergeBreakdowns(attempts);
  }
  return costs;
}

class Orderer {
 public:
  explicit Orderer(const CampaignResults& results)
      : results_(results),
        round_(LastRound(results)),
        time_shares_(TimeOfRound(results, round_).time_shares),
        costs_(CostsOf(results, round_)),
        steps_(results.campaign, results.machine) {}

  // Expected saving a second, of all trials of the intervention that are to run.
  double ValueOf(const Intervention& intervention) {
    double saving = 0;
    double seconds = 0;
    std::map<int, double> best;  // By point, over the choices of a sweep.
    for (const TrialRecord& trial : results_.trials) {
      if (trial.spec.intervention_id != intervention.id || trial.spec.settled.has_value() ||
          trial.spec.round != round_ || trial.spec.role != TrialRole::kCompare) {
        continue;
      }
      const auto index = static_cast<size_t>(trial.spec.point_index);
      const Point& point = results_.campaign.points[index];
      const double speedup = ExpectedSpeedup(intervention, point, CeilingOf(trial.spec),
                                             results_.campaign.measure.min_effect);
      double& most = best[trial.spec.point_index];
      most = std::max(most, time_shares_[index] * (1 - 1 / speedup));
      seconds += SecondsOf(trial.spec);
    }
    for (const auto& [point, most] : best) {
      saving += most;
    }
    return seconds > 0 ? saving / seconds : 0;
  }

 private:
  std::optional<double> CeilingOf(const TrialSpec& spec) {
    const auto index = static_cast<size_t>(spec.point_index);
    if (!costs_[index].breakdown.has_value()) {
      return std::nullopt;
    }
    const absl::StatusOr<CeilingInput> input =
        PrepareCeiling(spec.baseline, spec.variant, results_.campaign.points[index],
                       *costs_[index].breakdown, steps_);
    return input.ok() ? MakeCeiling(*input, "step").speedup : std::nullopt;
  }

  double SecondsOf(const TrialSpec& spec) const {
    const PointCost& cost = costs_[static_cast<size_t>(spec.point_index)];
    const bool own_processes = spec.variant.num_ranks() != results_.campaign.baseline.num_ranks() ||
                               spec.variant.process_env != results_.campaign.baseline.process_env;
    return static_cast<double>(results_.campaign.measure.launches) *
           (cost.attempt_s + (own_processes ? cost.setup_s : 0));
  }

  const CampaignResults& results_;  // Outlives this.
  const int round_;
  const std::vector<double> time_shares_;  // Of the round, by point.
  std::vector<PointCost> costs_;
  ExpectedSteps steps_;
};

}  // namespace

std::optional<double> PriorSpeedup(absl::string_view result) {
  double value = 0;
  if (absl::ConsumeSuffix(&result, "%")) {
    absl::ConsumePrefix(&result, "+");
    return absl::SimpleAtod(result, &value) && value > -100 && std::isfinite(value)
               ? std::optional(1 + value / 100)
               : std::nullopt;
  }
  absl::ConsumeSuffix(&result, "x");
  return absl::SimpleAtod(result, &value) && value > 0 && std::isfinite(value)
             ? std::optional(value)
             : std::nullopt;
}

double ExpectedSpeedup(const Intervention& intervention, const Point& point,
                       std::optional<double> ceiling, double min_effect) {
  double expected = 1 + min_effect;
  if (ceiling.has_value()) {
    expected = std::max(1.0, 2 / (1 + 1 / *ceiling));  // Half of the time that may go away.
  }
  if (intervention.claim.has_value() && intervention.claim->of == "step") {
    expected = !intervention.claim->IsOfBatch(point.batch)
                   ? 1
                   : std::sqrt(intervention.claim->low *
                               intervention.claim->high.value_or(intervention.claim->low));
  }
  if (intervention.prior.has_value()) {
    expected = PriorSpeedup(intervention.prior->result).value_or(expected);
  }
  return ceiling.has_value() ? std::min(expected, *ceiling) : expected;
}

std::vector<size_t> OrderTrials(const CampaignResults& results) {
  std::vector<size_t> order(results.trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!results.campaign.budget.wall.has_value()) {
    return order;
  }
  struct Key {
    double value = 0;
    int tier = 0;
    size_t position = 0;
  };
  std::map<std::string, Key> keys;
  Orderer orderer(results);
  for (size_t i = 0; i < results.campaign.interventions.size(); ++i) {
    const Intervention& one = results.campaign.interventions[i];
    keys[one.id] = {orderer.ValueOf(one), one.tier, i};
  }
  // Only what the last round compares is still to be ordered; the rest of it comes after.
  const int round = LastRound(results);
  const auto group = [&results, round](size_t i) {
    const TrialSpec& spec = results.trials[i].spec;
    return spec.round < round ? 0 : (spec.role == TrialRole::kCompare ? 1 : 2);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (group(a) != group(b)) return group(a) < group(b);
    if (group(a) != 1) return false;
    const auto left = keys.find(results.trials[a].spec.intervention_id);
    const auto right = keys.find(results.trials[b].spec.intervention_id);
    if (left == keys.end() || right == keys.end()) {
      return left == keys.end() && right != keys.end();  // Baselines.
    }
    const Key& x = left->second;
    const Key& y = right->second;
    if (x.value != y.value) return x.value > y.value;
    if (x.tier != y.tier) return x.tier < y.tier;
    return x.position < y.position;
  });
  return order;
}

}  // namespace lastflop
