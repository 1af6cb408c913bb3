#include "coordinator/worker_table.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/campaign_json.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

int64_t DeviceIndex(absl::string_view device) {
  const size_t colon = device.rfind(':');
  int64_t index = 0;
  return colon != absl::string_view::npos && absl::SimpleAtoi(device.substr(colon + 1), &index)
             ? index
             : 0;
}

std::string Backend(absl::string_view device) {
  return std::string(device.substr(0, device.find(':')));
}

SchedulerWorker ToScheduler(const WorkerEntry& worker) {
  return {.worker_id = worker.row.worker_id,
          .host_id = worker.row.host_id,
          .backend = Backend(worker.row.device),
          .device_name = worker.machine.device_name,
          .device_index = DeviceIndex(worker.row.device),
          .allows_commands = worker.allows_commands,
          .plugins = worker.plugins,
          .holds_host = worker.holds_host};
}

}  // namespace

WorkerState StateOf(const WorkerEntry& worker) {
  if (worker.is_quarantined) {
    return WorkerState::kQuarantined;
  }
  if (worker.is_lost || worker.session == 0) {
    return WorkerState::kLost;
  }
  return worker.attempts.empty() && worker.draining.empty() ? WorkerState::kIdle
                                                            : WorkerState::kBusy;
}

absl::StatusOr<std::string> WorkerTable::Accept(const WorkerHello& hello, SessionId session,
                                                std::chrono::milliseconds now,
                                                SessionId& replaced) {
  replaced = 0;
  absl::StatusOr<Machine> machine = MachineFromJson(hello.machine_json);
  if (!machine.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker's machine cannot be read: ", machine.status().message()));
  }
  const std::string worker_id = hello.worker_id.empty() ? NameFor(hello) : hello.worker_id;
  if (worker_id == kCoordinatorSource) {
    return absl::InvalidArgumentError(
        absl::StrCat("--id ", worker_id, " is the coordinator's own in the logs: choose another"));
  }
  WorkerEntry* known = Find(worker_id);
  if (known != nullptr && !IsGone(*known, hello, now)) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", worker_id, " is connected already (process ", known->row.pid,
                     " on ", known->row.host_name, "): give this one another --id"));
  }
  WorkerEntry& worker = workers_[worker_id];
  const bool is_same_process = worker.row.pid == hello.pid && worker.row.host_id == hello.host_id;
  replaced = worker.session;
  worker.row = {.worker_id = worker_id,
                .device = hello.device,
                .device_uuid = hello.device_uuid,
                .host_id = hello.host_id,
                .host_name = hello.host_name,
                .pid = hello.pid,
                .build_hash = hello.build_hash,
                .machine_json = hello.machine_json,
                .reason = is_same_process ? worker.row.reason : "",
                .num_done = worker.row.num_done,
                .num_failed = worker.row.num_failed};
  worker.machine = *std::move(machine);
  worker.allows_commands = hello.allows_commands;
  worker.plugins = hello.plugins;
  worker.session = session;
  worker.last_seen = now;
  worker.is_lost = false;
  worker.draining.clear();
  if (!is_same_process) {
    worker.is_quarantined = false;
    worker.num_baseline_failures = 0;
    worker.failed_in_row.clear();
    worker.unread.clear();
  }
  return worker_id;
}

WorkerEntry* WorkerTable::Find(absl::string_view worker_id) {
  const auto found = workers_.find(std::string(worker_id));
  return found == workers_.end() ? nullptr : &found->second;
}

WorkerEntry* WorkerTable::FindSession(SessionId session) {
  for (auto& [worker_id, worker] : workers_) {
    if (session != 0 && worker.session == session) {
      return &worker;
    }
  }
  return nullptr;
}

std::vector<SchedulerWorker> WorkerTable::ForScheduler() const {
  std::vector<SchedulerWorker> workers;
  for (const auto& [worker_id, worker] : workers_) {
    const WorkerState state = StateOf(worker);
    if (state == WorkerState::kIdle || state == WorkerState::kBusy) {
      workers.push_back(ToScheduler(worker));
      workers.back().is_idle = state == WorkerState::kIdle;
    }
  }
  return workers;
}

std::vector<SchedulerWorker> WorkerTable::Quarantined() const {
  std::vector<SchedulerWorker> workers;
  for (const auto& [worker_id, worker] : workers_) {
    if (worker.is_quarantined && !worker.is_lost && worker.session != 0) {
      workers.push_back(ToScheduler(worker));
    }
  }
  return workers;
}

std::string WorkerTable::NameFor(const WorkerHello& hello) const {
  const std::string base = absl::StrCat(hello.host_name.empty() ? "worker" : hello.host_name, "-",
                                        absl::StrReplaceAll(hello.device, {{":", ""}}));
  std::string name = base;
  for (int number = 2; workers_.count(name) > 0; ++number) {
    const WorkerEntry& worker = workers_.at(name);
    if (worker.session == 0 || worker.is_lost) {
      break;
    }
    name = absl::StrCat(base, "-", number);
  }
  return name;
}

bool WorkerTable::IsGone(const WorkerEntry& worker, const WorkerHello& hello,
                         std::chrono::milliseconds now) const {
  const bool is_same_process = worker.row.pid == hello.pid && worker.row.host_id == hello.host_id;
  const bool is_dead =
      worker.row.host_id == options_.host_id && !options_.is_process_alive(worker.row.pid);
  return worker.session == 0 || worker.is_lost || is_same_process || is_dead ||
         now - worker.last_seen > options_.timeout;
}

void BookSuccess(WorkerEntry& worker) {
  worker.num_baseline_failures = 0;
  worker.failed_in_row.clear();
}

void BookSuccessElsewhere(const std::string& trial_key, WorkerEntry& worker) {
  const auto failed = worker.failed_in_row.find(trial_key);
  if (failed != worker.failed_in_row.end()) {
    failed->second.is_known_good = true;
  }
}

WorkerVerdict BookFailure(FailedWork work, bool has_others, int failures_in_row,
                          WorkerEntry& worker) {
  const bool is_known_good_baseline = work.is_baseline && work.is_known_good;
  const std::string trial_key = work.trial_key;
  worker.failed_in_row.insert_or_assign(trial_key, std::move(work));
  if (is_known_good_baseline && ++worker.num_baseline_failures >= 2) {
    return {.is_quarantined = true,
            .reason = "it failed a baseline that is known to work, twice in a row"};
  }
  std::set<std::string> known_good;
  for (const auto& [key, failed] : worker.failed_in_row) {
    if (failed.is_known_good) {
      known_good.insert(failed.intervention);
    }
  }
  if (has_others && static_cast<int>(known_good.size()) >= failures_in_row) {
    return {.is_quarantined = true,
            .reason = absl::StrCat("it failed ", known_good.size(),
                                   " interventions in a row that are known to work")};
  }
  return {};
}

}  // namespace lastflop
