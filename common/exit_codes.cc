#include "common/exit_codes.h"

namespace lastflop {

int ExitCodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kExitUnreachable;
    default:
      return kExitInternal;
  }
}

absl::Status ErrorOfExit(int exit_code, absl::string_view message) {
  switch (exit_code) {
    case kExitUsage:
      return absl::FailedPreconditionError(message);
    case kExitUnreachable:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace lastflop
