#include "worker/measuring_hold.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "worker/agreement.h"
#include "worker/host_devices.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRound{10};
// So long the one that has waited longest is let go first. It looks every kRound, unless it is
// stopped.
constexpr milliseconds kCourtesy{500};

// What the rank whose turn it is tells the others, as a number in an all-gather.
enum Outcome { kWaiting = 0, kHeld = 1, kTimedOut = 2, kBroken = 3 };

std::string Seconds(milliseconds time) {
  return absl::StrFormat("%.1f s", std::chrono::duration<double>(time).count());
}

// A lock and the place of the one that is next to have it, which keeps a campaign that has just let
// go from taking it again before those that wait: their looks seldom fall between two attempts.
struct QueuedLock {
  DeviceLock lock;
  DeviceLock place;

  static absl::StatusOr<QueuedLock> Open(const std::string& name, const std::string& folder) {
    LASTFLOP_ASSIGN_OR_RETURN(DeviceLock lock, DeviceLock::Open(name, folder));
    LASTFLOP_ASSIGN_OR_RETURN(DeviceLock place,
                              DeviceLock::Open(absl::StrCat(name, "-next"), folder));
    return QueuedLock{.lock = std::move(lock), .place = std::move(place)};
  }

  // Takes it if it is free and, as far as courtesy goes after `waited`, nobody else is next.
  absl::StatusOr<bool> Try(LockMode mode, milliseconds waited) {
    if (!place.is_held()) {
      LASTFLOP_ASSIGN_OR_RETURN(const bool is_next, place.Try(LockMode::kExclusive));
      if (!is_next && waited < kCourtesy) {
        return false;
      }
    }
    return lock.Try(mode);
  }
};

// One gang taking its locks, one after another; each lock is one rank's turn.
class Taking {
 public:
  Taking(Gang& gang, Agreement agreement, const MeasuringHoldOptions& options)
      : gang_(gang), agreement_(std::move(agreement)), options_(options), started_(Clock::now()) {}

  // All ranks come back from a turn together.
  absl::Status Turn(int rank, absl::string_view what, LockMode mode, QueuedLock& lock) {
    bool is_waiting = false;
    bool is_said = false;
    const Clock::time_point waiting_since = Clock::now();
    while (true) {
      absl::Status own = absl::OkStatus();
      Outcome outcome = kWaiting;
      if (gang_.rank() == rank) {
        const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - waiting_since);
        outcome = TryOnce(what, mode, waited, lock, own);
        if (outcome == kWaiting && !std::exchange(is_waiting, true)) {
          options_.on_wait();
        }
        if (outcome == kWaiting && !is_said && waited >= options_.say_after) {
          is_said = true;
          options_.say(absl::StrCat("waiting for ", what, ", held by ", lock.lock.Holder()));
        }
      }
      LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> all, gang_.AllGather(outcome));
      const int of_turn = static_cast<int>(all[static_cast<size_t>(rank)]);
      if (of_turn == kHeld) {
        return absl::OkStatus();
      }
      if (of_turn != kWaiting) {
        return Agreed(own, of_turn == kTimedOut);
      }
      std::this_thread::sleep_for(kRound);
    }
  }

 private:
  Outcome TryOnce(absl::string_view what, LockMode mode, milliseconds waited, QueuedLock& lock,
                  absl::Status& status) {
    const absl::StatusOr<bool> is_held = lock.Try(mode, waited);
    if (!is_held.ok()) {
      status = is_held.status();
      return kBroken;
    }
    if (*is_held) {
      return kHeld;
    }
    if (Clock::now() - started_ < options_.timeout) {
      return kWaiting;
    }
    status = absl::DeadlineExceededError(absl::StrCat(
        what, " is still held by ", lock.lock.Holder(), " after ", Seconds(options_.timeout)));
    return kTimedOut;
  }

  // The error of the rank whose turn it is, on every rank.
  absl::Status Agreed(const absl::Status& own, bool timed_out) {
    const std::optional<Failure> failure = agreement_.Agree(own);
    if (!failure.has_value()) {
      return absl::InternalError("taking the locks failed without a reason");
    }
    if (failure->kind == FailureKind::kRankLost) {
      return absl::AbortedError(failure->message);
    }
    return timed_out ? absl::DeadlineExceededError(failure->message)
                     : absl::InternalError(failure->message);
  }

  Gang& gang_;  // Outlives this.
  Agreement agreement_;
  const MeasuringHoldOptions& options_;  // Outlives this.
  const Clock::time_point started_;
};

// Ranks in the order of their devices' indices.
absl::StatusOr<std::vector<int>> ByDevice(Gang& gang, absl::string_view device) {
  int index = 0;
  const size_t colon = device.find(':');
  const bool is_valid =
      colon != absl::string_view::npos && absl::SimpleAtoi(device.substr(colon + 1), &index);
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> indices,
                            gang.AllGather(is_valid ? index : -1));
  if (std::count(indices.begin(), indices.end(), -1) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " or that of another rank has no index"));
  }
  std::vector<int> ranks(indices.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return indices[static_cast<size_t>(a)] < indices[static_cast<size_t>(b)];
  });
  return ranks;
}

}  // namespace

absl::StatusOr<MeasuringHold> HoldToMeasure(Gang& gang, const MeasuringHoldOptions& options) {
  LASTFLOP_ASSIGN_OR_RETURN(Agreement agreement, Agreement::Create(gang));
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<int> ranks, ByDevice(gang, options.device));
  absl::StatusOr<QueuedLock> host = QueuedLock::Open("host", options.folder);
  absl::StatusOr<QueuedLock> device = QueuedLock::Open(
      options.lock_name.empty() ? IdentityOf(options.device).lock_name : options.lock_name,
      options.folder);
  if (const std::optional<Failure> failure =
          agreement.Agree(host.ok() ? device.status() : host.status());
      failure.has_value()) {
    return absl::InternalError(failure->message);
  }
  const bool is_alone = gang.num_ranks() > 1 || absl::StartsWith(options.device, "cpu:");
  Taking taking(gang, std::move(agreement), options);
  LASTFLOP_RETURN_IF_ERROR(
      taking.Turn(0, "this host", is_alone ? LockMode::kExclusive : LockMode::kShared, *host));
  { const DeviceLock free_for_the_next = std::move(host->place); }
  for (const int rank : ranks) {
    LASTFLOP_RETURN_IF_ERROR(
        taking.Turn(rank, absl::StrCat("device ", options.device), LockMode::kExclusive, *device));
  }
  return MeasuringHold{.device = std::move(device->lock), .host = std::move(host->lock)};
}

absl::StatusOr<MeasuringHold> HoldToMeasure(const MeasuringHoldOptions& options) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<Gang> alone,
                            JoinGang("", 0, 1, std::chrono::seconds(1)));
  return HoldToMeasure(*alone, options);
}

}  // namespace lastflop
