#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/trial.h"
#include "coordinator/campaign_run.h"
#include "coordinator/event_bus.h"
#include "coordinator/options.h"
#include "coordinator/outgoing.h"
#include "coordinator/worker_table.h"
#include "db/campaign_store.h"
#include "db/change_store.h"
#include "db/database.h"
#include "db/worker_store.h"

namespace lastflop {

struct Submission {
  std::string submission_id;
  Campaign campaign;
  std::string source_yaml;
  std::string source_name;
};

struct SubmitAnswer {
  std::string campaign_id;
  int num_trials = 0;
};

// What a worker is and runs, for lists.
struct WorkerView {
  WorkerRow row;
  std::string current;
};

// The coordinator without sockets and threads: messages in, rows and messages out. It decides with
// trial_rules and the scheduler, stores, and only then changes its memory and answers, so that
// nothing is reported done without its row. Not thread-safe.
//
// A method that writes gives the database's error when that cannot: memory is then as before, and
// the caller must stop using the engine (a restart reads everything again).
class Engine {
 public:
  // Reads the campaigns that were running. Their open attempts wait for their workers to come back
  // with them, as long as a worker may be silent or needs to find the coordinator. All arguments
  // outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Database& database, const Clock& clock,
                                                        const CoordinatorOptions& options,
                                                        EventBus& events);

  // InvalidArgument: the campaign cannot be run at all. The same submission again gives the first
  // one's answer.
  absl::StatusOr<SubmitAnswer> Submit(const Submission& submission);
  // NotFound. How many trials were cancelled, or are pending again.
  absl::StatusOr<int> Cancel(const std::string& campaign_id);
  absl::StatusOr<int> Resume(const std::string& campaign_id);

  // Messages of workers. A session that Hello() did not accept is ignored.
  absl::Status Hello(SessionId session, const WorkerHello& hello);
  // `held_up`: those that wait for a device on which another process measures.
  absl::Status Heartbeat(SessionId session, const std::vector<std::string>& attempt_ids,
                         const std::set<std::string>& held_up = {});
  absl::Status AttemptStarted(SessionId session, const std::string& attempt_id);
  // Nothing ran. kRefused: this worker cannot run it; kLost: it could not now.
  absl::Status AttemptRefused(SessionId session, const std::string& attempt_id,
                              const std::string& reason,
                              AttemptState state = AttemptState::kRefused);
  absl::Status AttemptReport(SessionId session, AttemptResult result);
  void AttemptProgress(SessionId session, const std::string& attempt_id, const std::string& stage,
                       int64_t pairs, double speedup);
  absl::Status WorkerLogs(SessionId session, std::vector<LogLine> lines);
  absl::Status Disconnected(SessionId session);

  // Ends what is overdue and gives work to idle workers. `last_seen` is when each session's last
  // message came, which may still wait to be handled.
  absl::Status Sweep(const std::map<SessionId, std::chrono::milliseconds>& last_seen);

  // Tells every worker to end.
  void ShutDownWorkers(const std::string& reason);

  // What has to be sent, in order; they are then forgotten.
  std::vector<Outgoing> TakeOutgoing();
  // Sessions whose streams must be closed: another stream of their worker took their place.
  std::vector<SessionId> TakeReplaced();

  // All workers ever seen, the connected ones as they are now.
  std::vector<WorkerView> Workers() const;

 private:
  // An attempt that is leased or running.
  struct OpenAttempt {
    std::string campaign_id;
    std::string gang_key;  // Whose children it uses: the launch base.
    std::vector<std::string> worker_ids;
    std::set<std::string> started;  // Members that said so, or that had it when they came back.
    std::set<std::string> held_up;  // Members that wait for a device that another process has.
    std::chrono::milliseconds deadline{0};    // From its start.
    std::chrono::milliseconds wall_grace{0};  // From the end of budget.wall.
    std::chrono::milliseconds expires{0};     // Monotonic: deadline and slack.
    // After a restart: members that have not come back with it, and until when they may.
    std::set<std::string> missing;
    std::chrono::milliseconds missing_until{0};
  };

  Engine(Database& database, const Clock& clock, const CoordinatorOptions& options,
         EventBus& events);
  absl::Status Load();
  absl::StatusOr<CampaignRun*> LoadRun(const std::string& campaign_id);

  // Concludes, stores, applies, publishes.
  absl::Status Commit(CampaignRun& run, Change change);
  void FillProgress(const CampaignRun& run, CampaignEvent& event) const;
  double SecondsLeft(const CampaignRun& run) const;

  // Ends an open attempt without a fault of its own.
  absl::Status Lose(const std::string& attempt_id, AttemptState state, const std::string& reason,
                    const std::optional<AttemptResult>& report = std::nullopt);
  absl::Status LoseAttemptsOf(WorkerEntry& worker, const std::string& reason);
  // Takes the attempt from its members; with `reason`, it is cancelled there.
  void Release(const std::string& attempt_id, absl::string_view reason);
  absl::Status HandleReport(WorkerEntry& worker, AttemptResult result);
  // Why a failure that a gang reports is the absence of one of its members; "" when it is not.
  std::string AbsenceBehind(const AttemptResult& result);
  absl::Status AdoptHeld(WorkerEntry& worker, const std::vector<std::string>& held);
  // Quarantines members that the report makes suspect; the reason when one was.
  absl::StatusOr<std::string> JudgeMembers(const CampaignRun& run, const AttemptResult& result);
  absl::Status Quarantine(WorkerEntry& worker, const std::string& reason);
  absl::Status SaveWorker(const WorkerEntry& worker);

  absl::Status ExpireWorkers(const std::map<SessionId, std::chrono::milliseconds>& last_seen);
  absl::Status ExpireAttempts();
  absl::Status PauseBudgets();
  absl::Status EndBudgets();
  // What runs when the budget is used up may end, unless it takes so long that it hangs.
  std::chrono::milliseconds GraceOfOpenAttempts(const CampaignRun& run) const;
  // Ends the campaign with DecideStop() and takes its open attempts from their workers.
  absl::Status Stop(CampaignRun& run, CampaignState campaign_state, TrialState trial_state,
                    const std::string& reason);
  absl::Status GiveOutWork();
  absl::Status MakeLease(CampaignRun& run, const LeaseDecision& decision);
  absl::Status BindMachine(CampaignRun& run, const WorkerEntry& worker);
  absl::Status SettleUnplaceable(const Schedule& schedule, const std::vector<CampaignRun*>& runs);
  absl::Status GiveUpWithoutWorkers();
  // Quarantined workers with which the trial could run, in words; "" when there are none.
  std::string QuarantineThatKeeps(const CampaignRun& run, size_t trial_index) const;
  // How long what the connected workers cannot run waits for others.
  std::chrono::milliseconds GraceForWorkers() const;

  // To this process' log and, for `lastflop logs coordinator`, to the database.
  absl::Status Say(LogSeverity severity, absl::string_view event, LogFields fields);
  void Send(const WorkerEntry& worker, CoordinatorMessage message);
  CampaignRun* FindRun(const std::string& campaign_id);
  std::vector<CampaignRun*> RunsByAge();

  Database& database_;                 // Outlives this.
  const Clock& clock_;                 // Outlives this.
  const CoordinatorOptions& options_;  // Outlives this.
  EventBus& events_;                   // Outlives this.
  ChangeStore changes_;
  CampaignStore campaigns_;
  WorkerStore worker_store_;
  WorkerTable workers_;
  std::map<std::string, CampaignRun> runs_;  // That run, by campaign_id.
  std::map<std::string, OpenAttempt> open_;  // By attempt_id.
  // Launch base -> how often its children were thrown away.
  std::map<std::string, int> generations_;
  std::string incarnation_;  // Of this engine: children of an earlier one are not used again.
  // Since when the workers, and with them what can be placed, are as they are.
  std::chrono::milliseconds workers_changed_at_{0};
  std::map<std::pair<std::string, std::string>, std::chrono::milliseconds> unplaceable_since_;
  uint64_t num_submitted_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<SessionId> replaced_;
};

}  // namespace lastflop
