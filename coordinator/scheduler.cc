#include "coordinator/scheduler.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/changes.h"
#include "planner/prune.h"

namespace lastflop {
namespace {

// Workers of one kind of device on one host: what a gang is formed from.
struct WorkerGroup {
  std::string host_id;
  std::string backend;
  std::string device_name;
  std::vector<const SchedulerWorker*> workers;  // By device index, then id.
};

std::vector<WorkerGroup> GroupWorkers(const std::vector<SchedulerWorker>& workers) {
  std::map<std::tuple<std::string, std::string, std::string>, WorkerGroup> by_key;
  for (const SchedulerWorker& worker : workers) {
    WorkerGroup& group = by_key[{worker.host_id, worker.backend, worker.device_name}];
    group.host_id = worker.host_id;
    group.backend = worker.backend;
    group.device_name = worker.device_name;
    group.workers.push_back(&worker);
  }
  std::vector<WorkerGroup> groups;
  for (auto& [key, group] : by_key) {
    std::sort(group.workers.begin(), group.workers.end(),
              [](const SchedulerWorker* a, const SchedulerWorker* b) {
                return std::tie(a->device_index, a->worker_id) <
                       std::tie(b->device_index, b->worker_id);
              });
    groups.push_back(std::move(group));
  }
  // A campaign that is bound to no device yet prefers GPUs, then the largest group.
  std::stable_sort(groups.begin(), groups.end(), [](const WorkerGroup& a, const WorkerGroup& b) {
    return std::pair(a.backend == "cuda", a.workers.size()) >
           std::pair(b.backend == "cuda", b.workers.size());
  });
  return groups;
}

// What the plans need of a worker that it has not got; "" when nothing is missing.
std::string MissingFor(const TrialSpec& trial, const SchedulerWorker& worker) {
  for (const Plan* plan : {&trial.baseline, &trial.variant}) {
    if (!plan->engine.empty() && !worker.allows_commands) {
      return absl::StrCat("engine.command=", plan->engine,
                          ": both backends run lastflop's own step only so far (and no worker "
                          "allows commands)");
    }
    if (plan->moe.kernel == MoeKernel::kPlugin && !worker.plugins.contains(plan->moe.plugin)) {
      return absl::StrCat("moe.kernel=plugin:", plan->moe.plugin,
                          ": no worker offers such a plugin; --plugin ", plan->moe.plugin,
                          "=FILE of a worker or of `lastflop run` does");
    }
  }
  return "";
}

// What keeps a host from taking another attempt.
struct HostUse {
  bool is_held = false;     // By a gang or a CPU attempt; or kept free for a gang.
  bool has_single = false;  // Single-GPU attempts run on it.
};

class Placement {
 public:
  explicit Placement(const std::vector<SchedulerWorker>& workers) : groups_(GroupWorkers(workers)) {
    for (const SchedulerWorker& worker : workers) {
      if (worker.is_idle) {
        idle_.insert(worker.worker_id);
      } else {
        HostUse& use = hosts_[worker.host_id];
        use.is_held = use.is_held || worker.holds_host;
        use.has_single = use.has_single || !worker.holds_host;
      }
    }
  }

  struct Answer {
    std::vector<std::string> worker_ids;  // Empty: not now.
    bool is_feasible = false;             // With the workers that are connected.
    size_t most_on_one_host = 0;          // Of workers that fit but for their number.
    bool only_refused = false;
    std::string machine_mismatch;  // Why workers that are there do not fit.
  };

  Answer Place(const CampaignRun& run, size_t trial_index, size_t num_workers) {
    const std::set<std::string> refused = RefusedBy(run, trial_index);
    const TrialSpec& trial = run.results.trials[trial_index].spec;
    Answer answer;
    const std::string* host_to_hold = nullptr;
    for (const WorkerGroup& group : groups_) {
      if (const std::string mismatch = Mismatch(run, group); !mismatch.empty()) {
        answer.machine_mismatch = mismatch;
        continue;
      }
      std::vector<const SchedulerWorker*> fitting;
      size_t num_refused = 0;
      for (const SchedulerWorker* worker : group.workers) {
        if (std::string missing = MissingFor(trial, *worker); !missing.empty()) {
          answer.machine_mismatch = std::move(missing);
        } else if (refused.count(worker->worker_id) > 0) {
          ++num_refused;
        } else {
          fitting.push_back(worker);
        }
      }
      answer.most_on_one_host = std::max(answer.most_on_one_host, fitting.size());
      answer.only_refused =
          answer.only_refused || (num_refused > 0 && fitting.size() + num_refused >= num_workers);
      if (fitting.size() < num_workers) {
        continue;
      }
      answer.is_feasible = true;
      const bool is_exclusive = num_workers > 1 || group.backend == "cpu";
      if (TryTake(group, fitting, num_workers, is_exclusive, answer.worker_ids)) {
        return answer;
      }
      if (is_exclusive && host_to_hold == nullptr) {
        host_to_hold = &group.host_id;
      }
    }
    if (host_to_hold != nullptr) {
      // Else attempts on single GPUs would follow each other for ever and the gang never start.
      hosts_[*host_to_hold].is_held = true;
    }
    return answer;
  }

 private:
  static std::set<std::string> RefusedBy(const CampaignRun& run, size_t trial_index) {
    std::set<std::string> refused;
    for (const size_t index : run.attempts_of_trial[trial_index]) {
      const AttemptRecord& attempt = run.results.attempts[index];
      if (attempt.state == AttemptState::kRefused && attempt.leased_at_ms >= run.resumed_at_ms) {
        refused.insert(attempt.worker_ids.begin(), attempt.worker_ids.end());
      }
    }
    return refused;
  }

  // A campaign stays on the kind of device that it was first run on, or that its machine file says.
  static std::string Mismatch(const CampaignRun& run, const WorkerGroup& group) {
    const Machine& machine = run.results.machine;
    if (run.has_machine) {
      return machine.backend == group.backend && machine.device_name == group.device_name
                 ? ""
                 : absl::StrCat("this campaign runs on ", machine.backend, " devices named \"",
                                machine.device_name, "\"");
    }
    return run.results.campaign.machine_auto ||
                   run.results.campaign.machine.backend == group.backend
               ? ""
               : absl::StrCat("the campaign's machine is a ", run.results.campaign.machine.backend,
                              " machine");
  }

  bool TryTake(const WorkerGroup& group, const std::vector<const SchedulerWorker*>& fitting,
               size_t num_workers, bool is_exclusive, std::vector<std::string>& taken) {
    HostUse& use = hosts_[group.host_id];
    if (use.is_held || (is_exclusive && use.has_single)) {
      return false;
    }
    std::vector<std::string> chosen;
    for (const SchedulerWorker* worker : fitting) {
      if (idle_.count(worker->worker_id) > 0) {
        chosen.push_back(worker->worker_id);
      } else if (is_exclusive) {
        return false;  // Always the same members, so that the gang's children are used again.
      }
      if (chosen.size() == num_workers) {
        break;
      }
    }
    if (chosen.size() < num_workers) {
      return false;
    }
    for (const std::string& worker_id : chosen) {
      idle_.erase(worker_id);
    }
    use.is_held = use.is_held || is_exclusive;
    use.has_single = use.has_single || !is_exclusive;
    taken = std::move(chosen);
    return true;
  }

  std::vector<WorkerGroup> groups_;
  std::set<std::string> idle_;
  std::map<std::string, HostUse> hosts_;
};

bool IsShard(const CampaignRun& run) { return run.results.campaign.fidelity == Fidelity::kShard; }

size_t NumWorkers(const CampaignRun& run, size_t trial_index) {
  return IsShard(run) ? 1 : static_cast<size_t>(NumRanks(run.results.trials[trial_index].spec));
}

std::string WhyUnplaceable(const Placement::Answer& answer, size_t num_workers) {
  if (answer.most_on_one_host == 0 && !answer.machine_mismatch.empty()) {
    return absl::StrCat("no connected worker can run it: ", answer.machine_mismatch);
  }
  return absl::StrCat("needs ", num_workers, num_workers == 1 ? " worker" : " workers",
                      " on one host, ", answer.most_on_one_host,
                      answer.most_on_one_host == 1 ? " is connected" : " are connected");
}

void ScheduleCampaign(const std::vector<SchedulerCampaign>& campaigns, size_t campaign_index,
                      int trials_per_cohort, Placement& placement, Schedule& schedule) {
  const CampaignRun& run = *campaigns[campaign_index].run;
  const bool shard = IsShard(run);
  const size_t num_leases_before = schedule.leases.size();
  std::set<size_t> seen;  // Trials that have their lease, or cannot be placed.
  for (const WorkItem& item : OrderOfWork(run, trials_per_cohort)) {
    if (seen.count(item.trial) > 0) {
      continue;
    }
    const int num_ranks = NumRanks(run.results.trials[item.trial].spec);
    const size_t num_workers = NumWorkers(run, item.trial);
    Placement::Answer answer = placement.Place(run, item.trial, num_workers);
    if (!answer.worker_ids.empty()) {
      seen.insert(item.trial);
      schedule.leases.push_back({.campaign = campaign_index,
                                 .trial = item.trial,
                                 .cohort = item.cohort,
                                 .launch = item.launch,
                                 .num_ranks = num_ranks,
                                 .shard = shard && num_ranks > 1,
                                 .worker_ids = std::move(answer.worker_ids)});
    } else if (!answer.is_feasible) {
      seen.insert(item.trial);
      schedule.unplaceable.push_back({.campaign = campaign_index,
                                      .trial = item.trial,
                                      .only_refused = answer.only_refused,
                                      .reason = WhyUnplaceable(answer, num_workers)});
    }
    if (!run.has_machine && schedule.leases.size() > num_leases_before) {
      return;  // The first lease decides the kind of device; the rest follows when that is stored.
    }
  }
}

// What a trial's children depend on beside the launch.
using ChildrenKey = std::pair<int, std::map<std::string, std::string>>;

ChildrenKey ChildrenKeyOf(const TrialSpec& trial) {
  return {NumRanks(trial), trial.variant.process_env};
}

// Puts trials that can use the same children side by side, groups in order of their first trial.
void GroupByChildren(const std::vector<TrialRecord>& trials, std::vector<size_t>& members) {
  std::map<ChildrenKey, size_t> group_of;
  for (const size_t index : members) {
    group_of.emplace(ChildrenKeyOf(trials[index].spec), group_of.size());
  }
  std::stable_sort(members.begin(), members.end(), [&](size_t a, size_t b) {
    return group_of.at(ChildrenKeyOf(trials[a].spec)) < group_of.at(ChildrenKeyOf(trials[b].spec));
  });
}

// Cohorts are cut from all dispatched trials, so that they stay the same while trials end.
std::vector<std::vector<size_t>> CohortsOf(const CampaignRun& run, int trials_per_cohort) {
  const std::vector<TrialRecord>& trials = run.results.trials;
  std::vector<std::vector<size_t>> cohorts;
  for (size_t place = 0; place < trials.size(); ++place) {
    const size_t i = run.order.size() == trials.size() ? run.order[place] : place;
    if (trials[i].spec.settled.has_value()) {
      continue;
    }
    if (cohorts.empty() || cohorts.back().size() == static_cast<size_t>(trials_per_cohort)) {
      cohorts.emplace_back();
    }
    cohorts.back().push_back(i);
  }
  for (std::vector<size_t>& members : cohorts) {
    GroupByChildren(trials, members);
  }
  return cohorts;
}

}  // namespace

std::vector<WorkItem> OrderOfWork(const CampaignRun& run, int trials_per_cohort) {
  const int num_launches = static_cast<int>(run.results.campaign.measure.launches);
  const bool baseline_only = AwaitsBaseline(run.results);
  std::vector<WorkItem> work;
  int cohort = 0;
  for (const std::vector<size_t>& members : CohortsOf(run, trials_per_cohort)) {
    std::vector<TrialTally> tallies;
    for (const size_t index : members) {
      tallies.push_back(TallyOf(run, index));
    }
    for (int launch = 0; launch < num_launches; ++launch) {
      for (size_t k = 0; k < members.size(); ++k) {
        const TrialRecord& trial = run.results.trials[members[k]];
        if (baseline_only && (trial.spec.intervention_id != kBaselineId || launch > 0)) {
          continue;
        }
        if (IsOpen(trial.state) && !tallies[k].has_open &&
            !tallies[k].accepted[static_cast<size_t>(launch)]) {
          work.push_back({.trial = members[k], .cohort = cohort, .launch = launch});
        }
      }
    }
    ++cohort;
  }
  return work;
}

int NumRanks(const TrialSpec& trial) {
  return static_cast<int>(std::max(trial.baseline.num_ranks(), trial.variant.num_ranks()));
}

bool CouldPlace(const CampaignRun& run, size_t trial_index,
                const std::vector<SchedulerWorker>& workers) {
  return Placement(workers).Place(run, trial_index, NumWorkers(run, trial_index)).is_feasible;
}

Schedule MakeSchedule(const std::vector<SchedulerCampaign>& campaigns,
                      const std::vector<SchedulerWorker>& workers, int trials_per_cohort) {
  Schedule schedule;
  if (workers.empty()) {
    return schedule;
  }
  Placement placement(workers);
  for (size_t i = 0; i < campaigns.size(); ++i) {
    if (campaigns[i].may_lease) {
      ScheduleCampaign(campaigns, i, trials_per_cohort, placement, schedule);
    }
  }
  return schedule;
}

}  // namespace lastflop
