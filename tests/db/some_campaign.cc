#include "tests/db/some_campaign.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>

#include "db/campaign_store.h"
#include "db/schema.h"

namespace lastflop {

TemporaryFile::TemporaryFile(const std::string& name) {
  std::string pattern = (std::filesystem::temp_directory_path() / "lastflop-test-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  path_ = folder_ + "/" + name;
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

CampaignResults SomeCampaign(const std::string& campaign_id) {
  CampaignResults results;
  results.campaign_id = campaign_id;
  results.created_at_ms = 1000;
  results.campaign.name = "name of " + campaign_id;
  results.campaign.points.push_back({.batch = 8, .context = 128, .time_share = 1});
  results.campaign.machine.name = "declared";
  results.source_yaml = "name: 'x'\n";
  results.source_name = "x.yaml";
  TrialRecord trial;
  trial.spec.trial_id = "t0000";
  trial.spec.intervention_id = kBaselineId;
  results.trials.push_back(trial);
  trial.spec.trial_id = "t0001";
  trial.spec.intervention_id = "group";
  trial.spec.choice = "moe.group_m=4";
  trial.spec.variant.moe.group_m = 4;
  results.trials.push_back(trial);
  trial.spec.trial_id = "t0002";
  trial.spec.settled = Standing::kInfeasible;
  trial.spec.settled_reason = "64 mod 3 = 1";
  trial.state = TrialState::kDone;
  trial.reason = "64 mod 3 = 1";
  results.trials.push_back(trial);
  return results;
}

AttemptResult SomeReport(const std::string& attempt_id) {
  AttemptResult result;
  result.attempt_id = attempt_id;
  result.trial_id = "t0001";
  result.launch = 1;
  for (int i = 0; i < 3; ++i) {
    result.samples.push_back({.pair = {.launch = 1,
                                       .draw = i,
                                       .baseline_us = 10.5 + i,
                                       .variant_us = 9.25,
                                       .throttled = i == 2,
                                       .variant_throttled = i == 2},
                              .variant_first = i == 1,
                              .baseline_wait_us = 0.5,
                              .variant_wait_us = 0.25,
                              .unique_experts = 59.5,
                              .imbalance = 1.25});
  }
  result.check_before = {.ok = true,
                         .max_error = 0.01,
                         .tolerance = 0.02,
                         .error_to_baseline = 0.3,
                         .changed_routes = 0.4,
                         .detail = "layer 0"};
  result.check_after = {.ok = false, .detail = "layer 1"};
  result.breakdown.push_back(
      {.category = OpCategory::kMoe, .op = "moe.gate_up", .us = 5, .count = 48, .floor_us = 4});
  result.breakdown_method = "host timeline";
  result.breakdown_step_us = 11;
  result.effective_baseline = "a=1\n";
  result.effective_variant = "a=2\n";
  result.effective_note = "ranks share cores";
  result.fidelity = Fidelity::kShard;
  result.warm = true;
  result.data_seed = 0xFFFFFFFFFFFFFFFEull;
  result.data_checksum = "0123456789abcdef";
  result.sampling_s = 1.5;
  result.setup_s = 2.5;
  result.capture_us = 3.5;
  result.environment = {{"device", "a \"cpu\"\n"}};
  result.warnings = {"one", "two"};
  return result;
}

NewAttempt SomeLease(const std::string& attempt_id, int launch) {
  NewAttempt attempt;
  attempt.record.result.attempt_id = attempt_id;
  attempt.record.result.trial_id = "t0001";
  attempt.record.result.launch = launch;
  attempt.record.worker_ids = {"w0", "w1"};
  attempt.launch_key = "c1/0/1";
  attempt.deadline = std::chrono::milliseconds(60000);
  return attempt;
}

Database DatabaseWithCampaign(const std::string& path) {
  absl::StatusOr<Database> database = Database::Open(path, Database::Mode::kReadWrite);
  absl::Status status = database.status();
  if (status.ok()) {
    status = MigrateSchema(*database);
  }
  if (status.ok()) {
    CampaignEvent event{.kind = "campaign", .state = "running"};
    status = CampaignStore(*database).Insert(SomeCampaign("c1"), "s1", event);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    abort();
  }
  return std::move(*database);
}

}  // namespace lastflop
