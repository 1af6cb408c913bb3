#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign_results.h"
#include "planner/breakdown.h"
#include "planner/cost/predict_step.h"
#include "planner/rank.h"
#include "planner/ranking.h"

// What the cost model (planner/cost) says of a campaign before anything of it runs.
namespace lastflop {

// A trial as the model prices it.
struct PredictedTrial {
  // Baseline over variant for the same output. Its interval comes from the ops that differ: what
  // both arms run alike, and is mispriced alike, cancels. Absent: `reason` says why.
  std::optional<SpeedupFigure> speedup;
  double baseline_us = 0;
  double variant_us = 0;  // Of the baseline's output, as PairSample::variant_us is.
  double baseline_tokens_per_s = 0;
  double variant_tokens_per_s = 0;
  std::string reason;
  std::vector<std::string>
      notes;  // What pricing the variant takes for granted, beyond the baseline.
};

struct PredictedBaseline {
  StepPrediction step;
  StepBreakdown breakdown;  // Op by op, as a measured one; its method says that it is predicted.
  StepBreakdown slowest;    // The same with every op at the upper end of its interval.
};

// Predicts the trials of one campaign on one machine. One thread at a time.
class CampaignPredictor {
 public:
  // All outlive the predictor; no imported rows: null. InvalidArgument: a machine without a
  // bandwidth.
  static absl::StatusOr<CampaignPredictor> Create(const Campaign& campaign, const Machine& machine,
                                                  ImportedRows* imported = nullptr);

  // The campaign's baseline at a point. Errors as StepPredictor::Predict.
  absl::StatusOr<PredictedBaseline> Baseline(int point_index);

  // No speedup where the model cannot price a plan, where the patch changes a field without a
  // curve, or where both are priced alike: it does not see what the patch changes, which is not the
  // same as no effect.
  PredictedTrial Compare(const TrialSpec& spec);

 private:
  CampaignPredictor(const Campaign& campaign, StepPredictor predictor)
      : campaign_(&campaign), predictor_(std::move(predictor)) {}

  struct Remembered {
    Plan plan;
    absl::StatusOr<StepPrediction> step;
  };

  // Remembered until the point is asked with another plan: trials have one baseline.
  const absl::StatusOr<StepPrediction>& StepOfBaseline(const Plan& plan, int point_index);

  const Campaign* campaign_;  // Outlives this.
  StepPredictor predictor_;
  std::map<int, Remembered> baselines_;  // By point.
};

// The ranking of a campaign from predictions alone, standing `predicted`: pruned by predicted
// ceilings, ordered, stacked, as a measured one is. InvalidArgument: the machine is `auto` or has
// no bandwidth, the campaign's plans do not expand, or no point of the baseline can be predicted.
absl::StatusOr<Ranking> PreviewCampaign(const Campaign& campaign, const RankOptions& options);

}  // namespace lastflop
