#include "cli/temporary_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
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

// Sets the time of the last change of `path` to an hour ago.
void MakeOld(const std::string& path) {
  const timespec then = {.tv_sec = time(nullptr) - 3600, .tv_nsec = 0};
  const timespec times[] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

void MakeSocket(const std::string& path) {
  ASSERT_LT(path.size(), sizeof(sockaddr_un::sun_path));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(socket_fd);
}

TEST(TemporaryFolderTest, OldSocketsOfGangsAndFoldersThatWereNeverFinishedAreRemovedToo) {
  std::string parent = "/tmp/temporary_folder_test_XXXXXX";  // Short, for the sockets' paths.
  ASSERT_NE(mkdtemp(parent.data()), nullptr);
  const std::string met = parent + "/lastflop-0123456789abcdef.sock";
  const std::string meeting = parent + "/lastflop-fedcba9876543210.sock";
  const std::string foreign = parent + "/other.sock";
  for (const std::string& path : {met, meeting, foreign}) {
    MakeSocket(path);
  }
  const std::string file = parent + "/lastflop-notes.sock";
  std::ofstream(file) << "a user's own";
  const std::string unfinished = parent + "/lastflop-run-unfinished";
  std::filesystem::create_directories(unfinished);
  for (const std::string& path : {met, foreign, file, unfinished}) {
    MakeOld(path);
  }
  ASSERT_TRUE(TemporaryFolder::Create(parent).ok());
  EXPECT_FALSE(std::filesystem::exists(met));
  EXPECT_FALSE(std::filesystem::exists(unfinished));
  EXPECT_TRUE(std::filesystem::exists(meeting));
  EXPECT_TRUE(std::filesystem::exists(foreign));
  EXPECT_TRUE(std::filesystem::exists(file)) << "it is no socket";
  std::filesystem::remove_all(parent);
}

}  // namespace
}  // namespace lastflop
