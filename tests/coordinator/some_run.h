#pragma once

#include <string>
#include <vector>

#include "common/campaign.h"
#include "coordinator/campaign_run.h"
#include "coordinator/scheduler.h"

namespace lastflop {

// A campaign with one decode point, `launches` launches and interventions that each set
// moe.group_m, all on `num_ranks` ranks.
Campaign SomeCampaignOf(int num_interventions, int launches = 1, int num_ranks = 1);

// The same as a run with its trials pending.
CampaignRun SomeRunOf(const Campaign& campaign);

// A successful report: three pairs in which the variant takes 0.9 of the baseline's time.
AttemptResult SuccessOf(const std::string& attempt_id);
AttemptResult FailureOf(const std::string& attempt_id, FailureKind kind, const std::string& message,
                        int rank = -1);

// An idle CPU worker, or a GPU.
SchedulerWorker CpuWorker(const std::string& worker_id, const std::string& host_id = "h0");
SchedulerWorker GpuWorker(const std::string& worker_id, int64_t device_index,
                          const std::string& host_id = "h0");

// Leases trial `trial_index` in `launch` in memory; gives the attempt's id.
std::string Lease(CampaignRun& run, size_t trial_index, int launch,
                  std::vector<std::string> worker_ids = {"w0"});

}  // namespace lastflop
