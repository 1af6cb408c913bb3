#include "common/exit_codes.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(ExitCodesTest, SayWhoseMistakeItWas) {
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("a field")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("no such campaign")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("no database")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("nobody listens")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::UnauthenticatedError("no token")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("ours")), kExitInternal);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("disk full")), kExitInternal);
}

TEST(ExitCodesTest, AProgramEndsItsCallerAlike) {
  for (const int code : {kExitUsage, kExitUnreachable, kExitInternal}) {
    EXPECT_EQ(ExitCodeOf(ErrorOfExit(code, "why")), code);
  }
  EXPECT_EQ(ErrorOfExit(kExitUsage, "why").message(), "why");
  EXPECT_EQ(ExitCodeOf(ErrorOfExit(-1, "signal 9")), kExitInternal);
}

}  // namespace
}  // namespace lastflop
