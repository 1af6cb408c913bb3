#include "worker/outage.h"

namespace lastflop {
namespace {

constexpr std::chrono::minutes kSayAgainAfter{1};
constexpr size_t kMostReasons = 16;  // gRPC's texts may hold what never repeats.

}  // namespace

bool Outage::ShouldSay(const std::string& reason, Clock::time_point now) {
  const auto found = said_at_.find(reason);
  if (found != said_at_.end() && now - found->second < kSayAgainAfter) {
    return false;
  }
  if (said_at_.size() >= kMostReasons) {
    said_at_.clear();
  }
  said_at_[reason] = now;
  return true;
}

}  // namespace lastflop
