#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "common/campaign.h"
#include "common/campaign_results.h"
#include "common/campaign_summary.h"
#include "db/worker_store.h"

// The coordinator as a command sees it: calls and plain answers, no message of the wire.
namespace lastflop {

struct Submission {
  std::string campaign_id;
  int num_trials = 0;
  std::vector<std::string> warnings;
};

struct TrialLine {
  std::string trial_id;
  std::string intervention_id;
  std::string choice;
  std::string point;
  std::string state;
  std::string reason;
  int num_attempts = 0;
  double speedup = 0;  // 0: not known.
};

struct ShownCampaign {
  CampaignSummary summary;
  std::vector<TrialLine> trials;
};

struct Event {
  int64_t sequence = 0;
  int64_t at_ms = 0;
  std::string kind;
  std::string trial_id;
  std::string intervention_id;
  std::string state;
  std::string message;
  CampaignSummary summary;
  std::string current;
  std::string best;
  double seconds_left = 0;  // 0: not known.
};

struct WorkerLine {
  std::string id;
  std::string device;
  std::string host;
  std::string state;
  std::string current;
  int64_t last_seen_ms = 0;
  int num_done = 0;
  int num_failed = 0;
  std::string reason;
  std::string build;
};

// Thread-compatible. Errors carry the coordinator's words; Unavailable: nobody answers there.
class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  // InvalidArgument: a malformed address or unreadable token file. Does not connect yet.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Open(const SourceFlags& flags);

  // Waits for an answer to a first call. Unavailable after `timeout`.
  virtual absl::Status WaitUntilUp(std::chrono::milliseconds timeout) = 0;

  virtual absl::StatusOr<Submission> Submit(const Campaign& campaign,
                                            const std::string& source_yaml,
                                            const std::string& source_name,
                                            const std::string& submission_id) = 0;
  virtual absl::StatusOr<std::vector<CampaignSummary>> List() = 0;
  virtual absl::StatusOr<ShownCampaign> Show(const std::string& id) = 0;
  // Calls `on_event` for each event after `after_sequence` until the campaign ends, `on_event`
  // answers false or `stop` is set (then OK).
  virtual absl::Status Watch(const std::string& id, int64_t after_sequence,
                             const std::atomic<bool>& stop,
                             const std::function<bool(const Event&)>& on_event) = 0;
  virtual absl::StatusOr<int> Cancel(const std::string& id) = 0;
  virtual absl::StatusOr<int> Resume(const std::string& id) = 0;
  virtual absl::StatusOr<CampaignResults> Fetch(const std::string& id) = 0;
  virtual absl::StatusOr<std::vector<WorkerLine>> Workers() = 0;
  virtual absl::Status Logs(const std::string& source, bool follow, const std::atomic<bool>& stop,
                            const std::function<void(const LogLine&)>& on_line) = 0;
};

}  // namespace lastflop
