#include "tests/planner/campaign_builder.h"

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr int kNumLaunches = 3;
constexpr int kPairsPerLaunch = 12;

Point DecodePoint(int64_t batch, double time_share) {
  Point point;
  point.batch = batch;
  point.context = 4096;
  point.time_share = time_share;
  return point;
}

}  // namespace

AttemptRecord DoneAttempt(const std::string& trial_id, int launch, size_t index) {
  AttemptRecord attempt;
  attempt.result.attempt_id = absl::StrCat(trial_id, "-", launch);
  attempt.result.trial_id = trial_id;
  attempt.result.launch = launch;
  attempt.result.check_before = {.ok = true};
  attempt.result.check_after = {.ok = true};
  attempt.state = AttemptState::kDone;
  attempt.authoritative = true;
  attempt.started_at_ms = static_cast<int64_t>(index) * 1000;
  return attempt;
}

CampaignBuilder::CampaignBuilder() {
  results_.campaign_id = "c0001";
  results_.state = CampaignState::kDone;
  results_.campaign.name = "example";
  results_.campaign.points = {DecodePoint(1, 0.25), DecodePoint(64, 0.75)};
  results_.campaign.economics.gpu_hours = 50000;
}

double CampaignBuilder::NextNoise() {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24) * 2 - 1;
}

CampaignBuilder& CampaignBuilder::Baseline(double us, double noise) {
  baseline_us_ = us;
  AddTrial(kBaselineId, 0, "", us, 1, noise);
  AddTrial(kBaselineId, 1, "", 4 * us, 1, noise);
  return *this;
}

CampaignBuilder& CampaignBuilder::Measured(const std::string& id, double speedup_b1,
                                           double speedup_b64, double noise) {
  Intervention intervention;
  intervention.id = id;
  intervention.effort = {.low_hours = 8, .likely_hours = 8, .high_hours = 8};
  results_.campaign.interventions.push_back(intervention);
  AddTrial(id, 0, "", baseline_us_, speedup_b1, noise);
  AddTrial(id, 1, "", 4 * baseline_us_, speedup_b64, noise);
  return *this;
}

CampaignBuilder& CampaignBuilder::Failed(const std::string& id, FailureKind kind,
                                         const std::string& message) {
  Measured(id, 1, 1);
  for (TrialRecord& trial : results_.trials) {
    if (trial.spec.intervention_id == id) {
      trial.state = TrialState::kFailed;
    }
  }
  for (AttemptRecord& attempt : results_.attempts) {
    for (const TrialRecord& trial : results_.trials) {
      if (trial.spec.intervention_id == id && trial.spec.trial_id == attempt.result.trial_id) {
        attempt.state = AttemptState::kFailed;
        attempt.result.samples.clear();
        attempt.result.failure = Failure{.kind = kind, .message = message};
      }
    }
  }
  return *this;
}

Intervention& CampaignBuilder::last() { return results_.campaign.interventions.back(); }

TrialRecord& CampaignBuilder::AddTrial(const std::string& intervention_id, int point_index,
                                       const std::string& choice, double baseline_us,
                                       double speedup, double noise) {
  TrialRecord trial;
  trial.spec.trial_id = absl::StrCat("t", results_.trials.size());
  trial.spec.intervention_id = intervention_id;
  trial.spec.choice = choice;
  trial.spec.point_index = point_index;
  trial.state = TrialState::kDone;
  for (int launch = 0; launch < kNumLaunches; ++launch) {
    AttemptRecord attempt = DoneAttempt(trial.spec.trial_id, launch, results_.attempts.size());
    for (int i = 0; i < kPairsPerLaunch; ++i) {
      PairSample sample;
      sample.pair.launch = launch;
      sample.pair.draw = launch * kPairsPerLaunch + i;
      sample.pair.baseline_us = baseline_us * (1 + noise * NextNoise());
      sample.pair.variant_us = baseline_us / speedup * (1 + noise * NextNoise());
      sample.unique_experts = 8;
      attempt.result.samples.push_back(sample);
    }
    results_.attempts.push_back(std::move(attempt));
  }
  results_.trials.push_back(std::move(trial));
  return results_.trials.back();
}

}  // namespace lastflop
