#include "tests/planner/rounds_player.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/expand_trials.h"
#include "planner/next_round.h"
#include "tests/planner/campaign_builder.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

constexpr int kNumLaunches = 3;
constexpr int kPairsPerLaunch = 12;
constexpr double kNoise = 0.002;

Point DecodePoint(int64_t batch) {
  Point point;
  point.batch = batch;
  point.context = 4096;
  point.time_share = 0.5;
  return point;
}

}  // namespace

Intervention Patch(const std::string& id, const std::vector<FieldSetting>& set) {
  Intervention intervention;
  intervention.id = id;
  intervention.title = id;
  intervention.effort = {.low_hours = 8, .likely_hours = 8, .high_hours = 8};
  intervention.set = set;
  return intervention;
}

RoundsPlayer::RoundsPlayer(const std::vector<Intervention>& interventions, Speedup speedup)
    : speedup_(std::move(speedup)) {
  results_.campaign_id = "c0001";
  Campaign& campaign = results_.campaign;
  campaign.model = QwenModel();
  campaign.points = {DecodePoint(1), DecodePoint(64)};
  campaign.economics.gpu_hours = 50000;
  campaign.budget.rounds = 2;
  campaign.interventions = interventions;
}

double RoundsPlayer::NextNoise() {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return kNoise * (static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24) * 2 - 1);
}

void RoundsPlayer::Measure(TrialRecord& trial) {
  const double baseline_us = trial.spec.point_index == 0 ? 1000 : 4000;
  const double speedup = trial.spec.baseline == trial.spec.variant ? 1 : speedup_(trial.spec);
  trial.state = TrialState::kDone;
  if (speedup <= 0) {
    trial.failure = speedup < 0
                        ? Failure{.kind = FailureKind::kCrashed, .message = "signal 9"}
                        : Failure{.kind = FailureKind::kUnsupported, .message = "no such kernel"};
    trial.reason = trial.failure->message;
    return;
  }
  for (int launch = 0; launch < kNumLaunches; ++launch) {
    AttemptRecord attempt = DoneAttempt(trial.spec.trial_id, launch, results_.attempts.size());
    if (trial.spec.intervention_id == kBaselineId && launch == 0) {
      attempt.result.breakdown = {{OpCategory::kMoe, "moe.gate_up", 0.6 * baseline_us, 1, 0},
                                  {OpCategory::kDense, "dense", 0.4 * baseline_us, 1, 0}};
      attempt.result.breakdown_step_us = baseline_us;
    }
    for (int i = 0; i < kPairsPerLaunch; ++i) {
      PairSample sample;
      sample.pair.launch = launch;
      sample.pair.draw = launch * kPairsPerLaunch + i;
      sample.pair.baseline_us = baseline_us * (1 + NextNoise());
      sample.pair.variant_us = baseline_us / speedup * (1 + NextNoise());
      attempt.result.samples.push_back(sample);
    }
    results_.attempts.push_back(std::move(attempt));
  }
}

bool RoundsPlayer::Stage() {
  std::vector<TrialSpec> added;
  if (results_.trials.empty()) {
    const auto specs = ExpandTrials(results_.campaign);
    if (specs.ok()) {
      added = *specs;
    }
  } else {
    NextRound next = DecideNextRound(results_);
    messages_.push_back(next.message);
    added = std::move(next.trials);
  }
  const size_t first = results_.trials.size();
  for (TrialSpec& spec : added) {
    TrialRecord trial;
    trial.state = spec.settled.has_value() ? TrialState::kDone : TrialState::kPending;
    trial.reason = spec.settled_reason;
    trial.spec = std::move(spec);
    results_.trials.push_back(std::move(trial));
  }
  for (size_t i = first; i < results_.trials.size(); ++i) {
    if (results_.trials[i].state == TrialState::kPending) {
      Measure(results_.trials[i]);
    }
  }
  if (results_.trials.size() == first) {
    results_.state = CampaignState::kDone;
    results_.reason = messages_.empty() ? "" : messages_.back();
  }
  return results_.trials.size() > first;
}

CampaignResults& RoundsPlayer::Play() {
  constexpr int kMostStages = 50;
  for (int i = 0; i < kMostStages && Stage(); ++i) {
  }
  return results_;
}

std::vector<const TrialRecord*> RoundsPlayer::Trials(int round, TrialRole role,
                                                     const std::string& id) const {
  std::vector<const TrialRecord*> trials;
  for (const TrialRecord& trial : results_.trials) {
    if (trial.spec.round == round && trial.spec.role == role && trial.spec.intervention_id == id) {
      trials.push_back(&trial);
    }
  }
  return trials;
}

}  // namespace lastflop
