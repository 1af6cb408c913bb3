#include "planner/predict_measured.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/accuracy.h"
#include "planner/cost/systems.h"
#include "planner/mix.h"
#include "planner/prediction.h"

namespace lastflop {
namespace {

// Absent when some point that counts has no prediction, and for what is on at no point: its 1.000x
// would be no prediction.
std::optional<SpeedupFigure> PredictMix(const SweepChoice& choice, const RankedIntervention& ranked,
                                        CampaignPredictor& predictor,
                                        std::set<std::string>& notes) {
  std::vector<MixPart> parts;
  bool is_on = false;
  for (const PointResult& point : ranked.points) {
    const auto index = static_cast<size_t>(point.point_index);
    const PooledTrial* trial = choice.points[index].trial;
    if (!point.enabled || !point.speedup.has_value()) {
      parts.push_back({point.time_share, UnchangedSpeedup()});
      continue;
    }
    is_on = true;
    const PredictedTrial predicted = predictor.Compare(trial->trial->spec);
    if (!predicted.speedup.has_value()) {
      return std::nullopt;
    }
    for (const std::string& note : predicted.notes) {
      notes.insert(absl::StrCat(ranked.id, ": ", note));
    }
    parts.push_back({point.time_share, *predicted.speedup});
  }
  return is_on ? MixSpeedup(parts) : std::nullopt;
}

const SweepChoice* ChoiceOfRanked(const RankingContext& context, const std::string& id) {
  for (size_t i = 0; i < context.choices.size(); ++i) {
    if (context.campaign().interventions[i].id == id) {
      return &context.choices[i];
    }
  }
  return nullptr;
}

}  // namespace

void PredictMeasured(const RankingContext& context, ImportedRows* imported, Ranking& ranking) {
  if (!context.predictions.empty() || context.campaign().measure.warm) {
    return;
  }
  Machine machine = context.results.machine;
  const std::string completed = CompleteFromDataSheet(machine);
  absl::StatusOr<CampaignPredictor> predictor =
      CampaignPredictor::Create(context.campaign(), machine, imported);
  if (!predictor.ok()) {
    return;
  }
  bool any = false;
  std::set<std::string> notes;
  for (RankedIntervention& one : ranking.interventions) {
    const SweepChoice* choice = ChoiceOfRanked(context, one.id);
    if (choice == nullptr || one.standing != Standing::kMeasured || !one.mix.has_value()) {
      continue;
    }
    if (const auto predicted = PredictMix(*choice, one, *predictor, notes)) {
      one.predicted_speedup = predicted->estimate;
      one.prediction_error = RelativeError(predicted->estimate, one.mix->estimate);
      any = true;
    }
  }
  if (!any) {
    return;
  }
  if (!completed.empty()) {
    notes.insert(completed);
  }
  for (size_t point = 0; point < context.campaign().points.size(); ++point) {
    if (const auto baseline = predictor->Baseline(static_cast<int>(point)); baseline.ok()) {
      notes.insert(baseline->step.notes.begin(), baseline->step.notes.end());
    }
  }
  ranking.assumptions.push_back(
      "predicted speedups are the cost model's of the trials that ran, and order nothing");
  for (const std::string& note : notes) {
    ranking.assumptions.push_back(absl::StrCat("prediction: ", note));
  }
}

}  // namespace lastflop
