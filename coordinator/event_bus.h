#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "db/change.h"

namespace lastflop {

// Wakes watchers. Stored events are read from the database; what is here is that there is news, the
// last progress, which is not stored, and why the coordinator stopped. Thread-safe.
class EventBus {
 public:
  // Something was stored: an event or a log line.
  void Notify();

  // The last progress of a campaign replaces the one before.
  void PublishProgress(const std::string& campaign_id, CampaignEvent progress);

  // Ends all watching: OK when the coordinator shuts down, else why it cannot go on.
  void Stop(const absl::Status& status);

  // Grows with every piece of news.
  int64_t version() const;

  // Blocks until there is news after `version`, at most `timeout`.
  void WaitForNews(int64_t version, std::chrono::milliseconds timeout) const;

  // The campaign's last progress, when it is newer than `version`.
  std::optional<CampaignEvent> ProgressAfter(const std::string& campaign_id, int64_t version) const;

  // Whether Stop() was called, and with what.
  std::optional<absl::Status> stopped() const;

 private:
  struct Progress {
    int64_t version = 0;
    CampaignEvent event;
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  int64_t version_ = 1;                       // Guarded by mutex_.
  std::map<std::string, Progress> progress_;  // Guarded by mutex_.
  std::optional<absl::Status> stopped_;       // Guarded by mutex_.
};

}  // namespace lastflop
