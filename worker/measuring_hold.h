#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "worker/device_lock.h"

namespace lastflop {

// What one rank keeps while its gang measures. Released with it.
struct MeasuringHold {
  DeviceLock device;
  // Rank 0's, for the whole gang. Nothing else measures on the host beside a gang or on its CPU;
  // attempts on single GPUs share it. On the other ranks it is open and not locked.
  DeviceLock host;
};

struct MeasuringHoldOptions {
  std::string device;     // This rank's.
  std::string lock_name;  // Of it among all devices of the host; "": IdentityOf(device)'s.
  std::chrono::milliseconds timeout{0};
  std::string folder = LockFolder();
  // Called when a lock is not free: the wait begins.
  std::function<void()> on_wait = [] {};
  // Called once a lock has been waited for for so long: who has it.
  std::chrono::milliseconds say_after{3000};
  std::function<void(const std::string& text)> say = [](const std::string&) {};
};

// Takes what the gang needs to measure: the host, then the devices in the order of their indices,
// whichever ranks have them, so that two gangs never wait for each other. Collective call: every
// rank returns OK or none does, in which case none holds anything. Other processes are waited for
// with sleeps: they may be measuring. Who waits has a lock before whoever asks for it later.
//
// DeadlineExceeded: a lock was not free within `timeout`; the message names it and its holder.
// Aborted: a rank ended.
absl::StatusOr<MeasuringHold> HoldToMeasure(Gang& gang, const MeasuringHoldOptions& options);

// The same for a process that measures alone.
absl::StatusOr<MeasuringHold> HoldToMeasure(const MeasuringHoldOptions& options);

}  // namespace lastflop
