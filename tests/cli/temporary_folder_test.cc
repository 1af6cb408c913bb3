#include "cli/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace lastflop {
namespace {

// Where nobody else makes folders.
std::string Parent() {
  std::string path = testing::TempDir() + "/temporary_folder_test_XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

TEST(TemporaryFolderTest, IsRemovedWithItsFiles) {
  const std::string parent = Parent();
  std::optional<absl::StatusOr<TemporaryFolder>> folder = TemporaryFolder::Create(parent);
  ASSERT_TRUE(folder->ok()) << folder->status();
  std::ofstream((*folder)->path() + "/log") << "line\n";
  folder.reset();
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  std::filesystem::remove_all(parent);
}

TEST(TemporaryFolderTest, OneThatWasLeftBehindIsRemovedByTheNextAndOneInUseIsNot) {
  const std::string parent = Parent();
  const std::string left = parent + "/lastflop-run-killed";
  std::filesystem::create_directories(left);
  std::ofstream(left + "/owner") << "";
  const std::string being_made = parent + "/lastflop-run-young";
  std::filesystem::create_directories(being_made);
  const std::string foreign = parent + "/other-tool";
  std::filesystem::create_directories(foreign);
  std::ofstream(foreign + "/owner") << "";
  std::filesystem::create_directory_symlink(foreign, parent + "/lastflop-run-link");
  {
    const absl::StatusOr<TemporaryFolder> first = TemporaryFolder::Create(parent);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FALSE(std::filesystem::exists(left));
    const absl::StatusOr<TemporaryFolder> second = TemporaryFolder::Create(parent);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(std::filesystem::exists(first->path() + "/owner")) << "it is in use";
  }
  EXPECT_TRUE(std::filesystem::exists(being_made)) << "nobody's yet";
  EXPECT_TRUE(std::filesystem::exists(foreign + "/owner")) << "a link is not followed";
  std::filesystem::remove_all(parent);
}

}  // namespace
}  // namespace lastflop
