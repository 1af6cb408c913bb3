#include "coordinator/event_bus.h"

#include <utility>

namespace lastflop {

void EventBus::Notify() {
  const std::lock_guard lock(mutex_);
  ++version_;
  news_.notify_all();
}

void EventBus::PublishProgress(const std::string& campaign_id, CampaignEvent progress) {
  const std::lock_guard lock(mutex_);
  ++version_;
  progress_[campaign_id] = {.version = version_, .event = std::move(progress)};
  news_.notify_all();
}

void EventBus::Stop(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  ++version_;
  stopped_ = status;
  news_.notify_all();
}

int64_t EventBus::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

void EventBus::WaitForNews(int64_t version, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, timeout, [&] { return version_ > version || stopped_.has_value(); });
}

std::optional<CampaignEvent> EventBus::ProgressAfter(const std::string& campaign_id,
                                                     int64_t version) const {
  const std::lock_guard lock(mutex_);
  const auto found = progress_.find(campaign_id);
  if (found == progress_.end() || found->second.version <= version) {
    return std::nullopt;
  }
  return found->second.event;
}

std::optional<absl::Status> EventBus::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace lastflop
