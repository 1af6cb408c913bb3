#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine.h"
#include "tests/coordinator/fake_clock.h"
#include "tests/coordinator/some_run.h"
#include "tests/db/some_campaign.h"

namespace lastflop {

// An engine on a database file, a clock that stands still, and workers that do what the test says.
class EngineFixture : public testing::Test {
 protected:
  EngineFixture();

  // A new engine on the same file, as after kill -9.
  void Restart();

  // Connects a CPU worker in a process of its own; gives its session.
  SessionId Connect(const std::string& worker_id, int64_t pid = 0,
                    const std::vector<std::string>& held = {});
  // As Connect(), on a host of its own.
  SessionId ConnectOn(const std::string& host_id, const std::string& worker_id);
  WorkerHello HelloOf(const std::string& worker_id, int64_t pid) const;

  std::string Submit(const Campaign& campaign);

  // One turn: heartbeats of nobody, then what the engine does by itself.
  void Sweep();

  // What was sent to a session since the last call, by kind.
  std::vector<LeaseMessage> TakeLeases(SessionId session);
  std::vector<AckMessage> TakeAcks(SessionId session);
  std::vector<CancelMessage> TakeCancels(SessionId session);
  std::optional<std::string> TakeRefusal(SessionId session);

  // Sweeps and takes the one lease of a session; the test fails without one.
  LeaseMessage NextLease(SessionId session);
  AckMessage Report(SessionId session, const AttemptResult& result);

  // Leases and succeeds until the sessions get nothing more; how many attempts they made.
  int WorkOff(const std::vector<SessionId>& sessions);
  int WorkOff(SessionId session) { return WorkOff(std::vector{session}); }

  CampaignResults Results(const std::string& campaign_id);

  TemporaryFile file_{"x.db"};
  FakeClock clock_;
  EventBus events_;
  CoordinatorOptions options_;
  std::set<int64_t> dead_pids_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Engine> engine_;

 private:
  template <typename T>
  std::vector<T> Take(SessionId session);

  std::map<SessionId, std::vector<CoordinatorMessage>> received_;
  SessionId last_session_ = 0;
  int num_submitted_ = 0;
  int64_t last_pid_ = 1000;
};

}  // namespace lastflop
