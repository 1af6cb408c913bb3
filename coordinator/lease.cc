#include "coordinator/lease.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/hash.h"
#include "common/random.h"
#include "coordinator/changes.h"

namespace lastflop {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Streams of the random numbers that a campaign's id gives.
constexpr uint64_t kDataStream = 1;
constexpr uint64_t kDrawStream = 2;

// Data that an earlier comparison was made on decides nothing twice: each round has its own, and
// the confirmations of a round share those of the next one.
int DataEpoch(const TrialSpec& trial) {
  return trial.role == TrialRole::kConfirm ? trial.round : trial.round - 1;
}

bool ClaimsPart(const Intervention& intervention, const Point& point) {
  return intervention.claim.has_value() && intervention.claim->of != "step" &&
         intervention.claim->IsOfBatch(point.batch);
}

// A breakdown is a run of its own. One of the baseline is enough to see where the time goes; a
// claim about a part of the step is held against those of both arms in every launch.
bool NeedsBreakdown(const Campaign& campaign, const TrialSpec& trial, int launch) {
  const bool is_baseline = trial.intervention_id == kBaselineId;
  const Point& point = campaign.points[static_cast<size_t>(trial.point_index)];
  return (is_baseline && launch == 0) ||
         std::any_of(campaign.interventions.begin(), campaign.interventions.end(),
                     [&](const Intervention& one) {
                       return (is_baseline || one.id == trial.intervention_id) &&
                              ClaimsPart(one, point);
                     });
}

AttemptSpec MakeAttempt(const CampaignRun& run, const LeaseDecision& decision,
                        const std::string& attempt_id, std::chrono::milliseconds deadline) {
  const Campaign& campaign = run.results.campaign;
  const MeasureOptions& measure = campaign.measure;
  const TrialSpec& trial = run.results.trials[decision.trial].spec;
  const uint64_t routing_seed =
      campaign.points[static_cast<size_t>(trial.point_index)].routing.seed;
  return {.attempt_id = attempt_id,
          .trial_id = trial.trial_id,
          .intervention_id = trial.intervention_id,
          .point_index = trial.point_index,
          .baseline = trial.baseline,
          .variant = trial.variant,
          .seed = CounterRandom(StableHash(run.results.campaign_id) ^ routing_seed, kDrawStream,
                                StableHash(absl::StrCat(trial.trial_id, "/", decision.launch))),
          .min_pairs = CeilDivide(measure.min_pairs, measure.launches),
          .max_time = measure.max_time / measure.launches,
          .half_width = measure.half_width,
          .confidence = measure.confidence,
          .breakdown = measure.breakdown && NeedsBreakdown(campaign, trial, decision.launch),
          .deadline = deadline};
}

}  // namespace

std::string LaunchBase(const CampaignRun& run, const LeaseDecision& decision) {
  const Plan& variant = run.results.trials[decision.trial].spec.variant;
  std::string env;
  for (const auto& [name, value] : variant.process_env) {
    absl::StrAppend(&env, name, "=", value, "\n");
  }
  return absl::StrCat(
      run.results.campaign_id, "/", decision.cohort, "/", decision.launch, "/", decision.num_ranks,
      decision.shard ? "s" : "", "/", DataEpoch(run.results.trials[decision.trial].spec), "/",
      absl::Hex(StableHash(env), absl::kZeroPad16), "/", absl::StrJoin(decision.worker_ids, "+"));
}

std::string NextAttemptId(const CampaignRun& run, size_t trial_index) {
  const TrialRecord& trial = run.results.trials[trial_index];
  return absl::StrCat(run.results.campaign_id, "-", trial.spec.trial_id, "-a",
                      trial.num_attempts + 1);
}

AttemptNeeds NeedsOf(const CampaignRun& run, const TrialSpec& trial) {
  return NeedsOf(run.results.campaign, trial, run.results.machine.backend == "cpu");
}

void AddLease(const CampaignRun& run, const LeaseDecision& decision, const std::string& attempt_id,
              const std::string& launch_key, std::chrono::milliseconds deadline, Change& change) {
  NewAttempt attempt;
  const TrialRecord& trial = run.results.trials[decision.trial];
  attempt.record.result.attempt_id = attempt_id;
  attempt.record.result.trial_id = trial.spec.trial_id;
  attempt.record.result.launch = decision.launch;
  attempt.record.worker_ids = decision.worker_ids;
  attempt.launch_key = launch_key;
  attempt.deadline = deadline;
  change.leased.push_back(std::move(attempt));
  if (trial.state == TrialState::kPending) {
    TrialRecord running = trial;
    running.state = TrialState::kRunning;
    AddTrial(run, std::move(running), change);
  }
  const std::string current =
      absl::StrCat(TrialLabel(run, trial.spec), ", launch ", decision.launch + 1, " of ",
                   run.results.campaign.measure.launches);
  change.events.push_back(
      {.kind = "attempt",
       .trial_id = trial.spec.trial_id,
       .intervention_id = trial.spec.intervention_id,
       .state = "leased",
       .message = absl::StrCat("leased to ", absl::StrJoin(decision.worker_ids, ", ")),
       .current = current});
}

std::vector<LeaseMessage> MakeLeases(const CampaignRun& run, const LeaseDecision& decision,
                                     const std::string& attempt_id, const std::string& launch_key,
                                     std::chrono::milliseconds deadline) {
  LeaseMessage lease;
  lease.launch = {
      .launch_key = launch_key,
      .campaign_id = run.results.campaign_id,
      .launch = decision.launch,
      .campaign_json = run.campaign_json,
      .data_seed = CounterRandom(
          StableHash(run.results.campaign_id), kDataStream,
          static_cast<uint64_t>(decision.launch) +
              (static_cast<uint64_t>(DataEpoch(run.results.trials[decision.trial].spec)) << 32)),
      .env = run.results.trials[decision.trial].spec.variant.process_env};
  lease.attempt = MakeAttempt(run, decision, attempt_id, deadline);
  lease.place.num_ranks = decision.num_ranks;
  lease.place.shard = decision.shard;
  if (decision.worker_ids.size() > 1) {
    // In /tmp on every host, and short: a socket's path ends at 107 bytes. cli/temporary_folder.cc
    // knows the name, to remove what killed gangs left.
    lease.place.rendezvous = absl::StrCat(
        "/tmp/lastflop-", absl::Hex(StableHash(launch_key), absl::kZeroPad16), ".sock");
  }
  std::vector<LeaseMessage> leases(decision.worker_ids.size(), lease);
  for (size_t rank = 0; rank < leases.size(); ++rank) {
    leases[rank].place.rank = static_cast<int>(rank);
  }
  return leases;
}

}  // namespace lastflop
