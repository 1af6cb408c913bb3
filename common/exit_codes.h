#pragma once

#include "absl/status/status.h"

namespace lastflop {

// What every binary exits with.
inline constexpr int kExitFinished = 0;    // Findings of any kind are results.
inline constexpr int kExitRegression = 1;  // Baseline failed, or `compare` found a regression.
inline constexpr int kExitUsage = 2;       // Usage or input.
inline constexpr int kExitUnfinished = 3;  // Budget or cancelled: resumable.
inline constexpr int kExitUnreachable = 4;
inline constexpr int kExitInternal = 5;
inline constexpr int kExitInterrupted = 130;

// What a program exits with when it ends on an error: what its caller gave it or pointed it at is
// kExitUsage (InvalidArgument, NotFound, FailedPrecondition), who did not answer or let it in is
// kExitUnreachable, a mistake of ours and a broken host kExitInternal.
int ExitCodeOf(const absl::Status& error);

// The error of a program of ours that ended with `exit_code`, so that it ends its caller alike.
absl::Status ErrorOfExit(int exit_code, absl::string_view message);

}  // namespace lastflop
