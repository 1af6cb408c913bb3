#include "tests/coordinator/some_run.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/expand_trials.h"
#include "coordinator/lease.h"

namespace lastflop {

Campaign SomeCampaignOf(int num_interventions, int launches, int num_ranks) {
  Campaign campaign;
  campaign.name = "some";
  // As small as a model gets that two ranks and experts divide.
  Model& model = campaign.model;
  model.name = "tiny";
  model.hidden_size = 64;
  model.num_layers = 2;
  model.layer_kinds = {LayerKind::kMoe, LayerKind::kMoe};
  model.num_experts = 8;
  model.top_k = 2;
  model.moe_intermediate_size = 64;
  model.vocab_size = 128;
  model.attention.num_heads = 8;
  model.attention.num_kv_heads = 8;
  model.attention.head_dim = 8;
  campaign.baseline.parallel.tensor = num_ranks;
  campaign.points.push_back({.batch = 8, .context = 128, .time_share = 1});
  campaign.measure.launches = launches;
  campaign.measure.prune = false;
  for (int i = 0; i < num_interventions; ++i) {
    Intervention intervention;
    intervention.id = absl::StrCat("i", i);
    intervention.title = intervention.id;
    intervention.set.push_back({"moe.group_m", absl::StrCat(i + 1)});
    campaign.interventions.push_back(intervention);
  }
  return campaign;
}

CampaignRun SomeRunOf(const Campaign& campaign) {
  const absl::StatusOr<std::vector<TrialSpec>> specs = ExpandTrials(campaign);
  if (!specs.ok()) {
    std::fprintf(stderr, "%s\n", specs.status().ToString().c_str());
    abort();
  }
  CampaignResults results;
  results.campaign_id = "c1";
  results.campaign = campaign;
  for (const TrialSpec& spec : *specs) {
    TrialRecord trial;
    trial.spec = spec;
    trial.state = spec.settled.has_value() ? TrialState::kDone : TrialState::kPending;
    results.trials.push_back(trial);
  }
  return MakeRun(std::move(results), RunState{.has_machine = false});
}

AttemptResult SuccessOf(const std::string& attempt_id) {
  AttemptResult result;
  result.attempt_id = attempt_id;
  for (int i = 0; i < 3; ++i) {
    result.samples.push_back({.pair = {.draw = i, .baseline_us = 100, .variant_us = 90}});
  }
  result.check_before = {.ok = true};
  result.check_after = {.ok = true};
  result.sampling_s = 0.1;
  return result;
}

AttemptResult FailureOf(const std::string& attempt_id, FailureKind kind, const std::string& message,
                        int rank) {
  AttemptResult result;
  result.attempt_id = attempt_id;
  result.failure = Failure{.kind = kind, .message = message, .rank = rank};
  return result;
}

SchedulerWorker CpuWorker(const std::string& worker_id, const std::string& host_id) {
  return {.worker_id = worker_id, .host_id = host_id, .backend = "cpu", .device_name = "some cpu"};
}

SchedulerWorker GpuWorker(const std::string& worker_id, int64_t device_index,
                          const std::string& host_id) {
  return {.worker_id = worker_id,
          .host_id = host_id,
          .backend = "cuda",
          .device_name = "some gpu",
          .device_index = device_index};
}

std::string Lease(CampaignRun& run, size_t trial_index, int launch,
                  std::vector<std::string> worker_ids) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = 1000};
  const std::string attempt_id = NextAttemptId(run, trial_index);
  AddLease(run, {.trial = trial_index, .launch = launch, .worker_ids = std::move(worker_ids)},
           attempt_id, "key", std::chrono::minutes(15), change);
  ApplyToMemory(change, run);
  return attempt_id;
}

}  // namespace lastflop
