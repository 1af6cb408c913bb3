#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/campaign_run.h"

// Which trial runs next, and where: a pure function of the campaigns and the workers.
// docs/adr/0001-launches-and-attempts.md has the order and the reasons.
namespace lastflop {

// A worker that is connected and neither lost nor quarantined.
struct SchedulerWorker {
  std::string worker_id;
  std::string host_id;
  std::string backend;      // cpu | cuda
  std::string device_name;  // "NVIDIA H200"
  int64_t device_index = 0;
  bool allows_commands = false;
  std::set<std::string> plugins;  // Names that moe.kernel=plugin:NAME may have.
  bool is_idle = true;
  bool holds_host = false;  // Not idle: by a gang or a CPU attempt, which have their host alone.
};

struct SchedulerCampaign {
  const CampaignRun* run = nullptr;  // Outlives the call.
  bool may_lease = true;             // False: budget.wall is used up.
};

// One attempt to make.
struct LeaseDecision {
  size_t campaign = 0;  // Index into the input.
  size_t trial = 0;     // Index into its trials.
  int cohort = 0;
  int launch = 0;
  int num_ranks = 1;
  bool shard = false;
  std::vector<std::string> worker_ids;  // By rank.
};

// A trial that the connected workers cannot run, whoever becomes idle.
struct UnplaceableTrial {
  size_t campaign = 0;
  size_t trial = 0;
  bool only_refused = false;  // Enough workers are there, but they refused it.
  std::string reason;         // "needs 8 workers on one host, 2 are connected"
};

struct Schedule {
  std::vector<LeaseDecision> leases;
  std::vector<UnplaceableTrial> unplaceable;  // Empty while no worker is connected at all.
};

// One launch of a trial that is still to be measured.
struct WorkItem {
  size_t trial = 0;
  int cohort = 0;
  int launch = 0;
  bool operator==(const WorkItem&) const = default;
};

// What is left of a campaign, in order: cohort by cohort, in a cohort launch by launch, in a launch
// grouped by ranks and environment so that children are seldom replaced, else in the run's order of
// trials. Trials with an open attempt are left out. While ceilings wait for the baseline
// (planner: AwaitsBaseline) only its first launch is there.
std::vector<WorkItem> OrderOfWork(const CampaignRun& run, int trials_per_cohort);

// Processes that an attempt at the trial needs: the larger of its arms'.
int NumRanks(const TrialSpec& trial);

// Whether the workers, all of them idle, could run the trial.
bool CouldPlace(const CampaignRun& run, size_t trial_index,
                const std::vector<SchedulerWorker>& workers);

// Campaigns come in the order in which they were created; a later one gets what the earlier ones
// leave. A gang takes all its workers at once or holds its host free until it can.
Schedule MakeSchedule(const std::vector<SchedulerCampaign>& campaigns,
                      const std::vector<SchedulerWorker>& workers, int trials_per_cohort);

}  // namespace lastflop
