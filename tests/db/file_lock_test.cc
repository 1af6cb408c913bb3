#include "db/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "db/database_file.h"
#include "tests/db/some_campaign.h"

namespace lastflop {
namespace {

TEST(FileLockTest, ASecondHolderIsRefusedAndToldWhoHasIt) {
  const TemporaryFile file("x.db");
  std::optional<absl::StatusOr<FileLock>> first = FileLock::Acquire(file.path());
  ASSERT_TRUE(first->ok()) << first->status();
  const absl::Status status = FileLock::Acquire(file.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(absl::StrCat("process ", getpid())), absl::string_view::npos)
      << status;
  first.reset();
  EXPECT_TRUE(FileLock::Acquire(file.path()).ok());
}

TEST(FileLockTest, AnybodyCanAskWhetherItIsHeld) {
  const TemporaryFile file("x.db");
  EXPECT_FALSE(FileLock::IsHeld(file.path())) << "nobody has ever held it";
  std::optional<absl::StatusOr<FileLock>> first = FileLock::Acquire(file.path());
  EXPECT_TRUE(FileLock::IsHeld(file.path()));
  first.reset();
  EXPECT_FALSE(FileLock::IsHeld(file.path()));
  EXPECT_TRUE(FileLock::Acquire(file.path()).ok()) << "asking takes nothing";
}

TEST(FileLockTest, ALinkIsTheFileItPointsTo) {
  const TemporaryFile file("x.db");
  std::ofstream(file.path()).flush();
  const std::string link = file.folder() + "/link.db";
  std::filesystem::create_symlink(file.path(), link);
  const absl::StatusOr<std::string> resolved = ResolveDatabaseFile(link);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved, *ResolveDatabaseFile(file.path()));
  const absl::StatusOr<FileLock> lock = FileLock::Acquire(*resolved);
  EXPECT_TRUE(FileLock::IsHeld(link));
}

TEST(FileLockTest, SaysWhenTheFolderIsNotThere) {
  EXPECT_EQ(FileLock::Acquire("/nonexistent/folder/x.db").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lastflop
