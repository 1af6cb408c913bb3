#include "cli/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr char kPrefix[] = "lastflop-run-";
// Its process holds the lock of this file, which stands in the folder under its name only then:
// a folder that is being made looks like nobody's to nobody.
constexpr char kOwnerFile[] = "/owner";

bool IsOwn(const std::string& path) {
  struct stat of_path {};
  return lstat(path.c_str(), &of_path) == 0 && S_ISDIR(of_path.st_mode) &&
         of_path.st_uid == geteuid();
}

// Whether the process that made the folder has ended.
bool IsAbandoned(const std::string& path) {
  const int owner = open((path + kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (owner < 0) {
    return false;
  }
  const bool is_free = flock(owner, LOCK_EX | LOCK_NB) == 0;
  close(owner);
  return is_free;
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  std::filesystem::directory_iterator entries(parent, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string path = entries->path().string();
    if (absl::StartsWith(entries->path().filename().string(), kPrefix) && IsOwn(path) &&
        IsAbandoned(path)) {
      std::error_code ignored;  // Somebody else may be removing it too.
      std::filesystem::remove_all(path, ignored);
    }
  }
}

// The locked owner file of a folder, or -1.
int Own(const std::string& path) {
  const std::string file = path + kOwnerFile;
  const std::string draft = file + ".new";
  const int owner = open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (owner >= 0 &&
      (flock(owner, LOCK_EX | LOCK_NB) != 0 || std::rename(draft.c_str(), file.c_str()) != 0)) {
    close(owner);
    return -1;
  }
  return owner;
}

}  // namespace

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create(const std::string& parent) {
  RemoveAbandoned(parent);
  std::string path = absl::StrCat(parent, "/", kPrefix, "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InternalError(absl::StrCat("making ", path, ": ", std::strerror(errno)));
  }
  const int owner = Own(path);
  const int error = errno;
  TemporaryFolder folder(std::move(path), owner);
  if (owner < 0) {
    return absl::InternalError(
        absl::StrCat("locking ", folder.path(), kOwnerFile, ": ", std::strerror(error)));
  }
  return folder;
}

TemporaryFolder::TemporaryFolder(std::string path, int owner)
    : path_(std::move(path)), owner_(owner < 0 ? nullptr : new int(owner)) {}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), owner_(std::move(other.owner_)) {}

TemporaryFolder::~TemporaryFolder() {
  if (!path_.empty()) {
    std::error_code ignored;  // A leftover in the temporary folder harms nobody.
    std::filesystem::remove_all(path_, ignored);
  }
}

void TemporaryFolder::CloseFile::operator()(const int* descriptor) const {
  close(*descriptor);
  delete descriptor;
}

}  // namespace lastflop
