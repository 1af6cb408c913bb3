#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lastflop {

// What the coordinator's decisions depend on beside the campaigns. Defaults are lastflopd's.
struct CoordinatorOptions {
  std::chrono::milliseconds heartbeat{1000};  // Workers are asked to send one this often.
  std::chrono::milliseconds timeout{15000};   // Silent for longer: lost.
  // How long a worker may take to find a coordinator that has restarted, where `timeout` is
  // shorter: its tries come seconds apart after some time without one.
  std::chrono::milliseconds reconnect{5000};
  // What an attempt may take at most beside its timed sampling (attempt_allowance.h says how much
  // of it one gets). A worker that still has not reported a while after is not waited for.
  std::chrono::milliseconds attempt_deadline{15 * 60 * 1000};
  std::chrono::milliseconds deadline_slack{30000};
  // How long a trial that no set of connected workers can run waits for more workers.
  std::chrono::milliseconds gang_grace{30000};
  // How many workers will ever connect, 0: nobody knows. While all of them are there a trial that
  // they cannot run waits for no more.
  int expected_workers = 0;
  int max_lost_attempts = 5;   // Of one trial since it was started or resumed: then lost_out.
  int trials_per_cohort = 32;  // Trials that share their launches.
  // Different interventions, known to work, that a worker fails at until it is suspected.
  int failures_in_row = 3;
  std::string host_id;                                // This host's; common/host.h.
  std::function<bool(int64_t pid)> is_process_alive;  // On this host.
  uint64_t seed = 0;  // Of campaign ids: random in lastflopd, fixed in tests.
};

}  // namespace lastflop
