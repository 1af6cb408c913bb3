#include "cli/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr char kPrefix[] = "lastflop-run-";
// As coordinator/lease.cc names where a gang meets.
constexpr char kSocketPrefix[] = "lastflop-";
constexpr char kSocketSuffix[] = ".sock";
// Its process holds the lock of this file, which stands in the folder under its name only then:
// a folder that is being made looks like nobody's to nobody.
constexpr char kOwnerFile[] = "/owner";

// A folder without an owner file, or a socket, that is older was left behind: making the one, and
// meeting at the other (a minute at most, worker/child_service.cc), take less.
constexpr time_t kMostAgeS = 600;

std::optional<struct stat> StatOfOwn(const std::string& path) {
  struct stat of_path {};
  const bool is_own = lstat(path.c_str(), &of_path) == 0 && of_path.st_uid == geteuid();
  return is_own ? std::optional(of_path) : std::nullopt;
}

bool IsOld(const struct stat& of_path) {
  return time(nullptr) - of_path.st_mtim.tv_sec > kMostAgeS;
}

// Whether the process that made the folder has ended.
bool IsAbandonedFolder(const std::string& path) {
  const std::optional<struct stat> of_path = StatOfOwn(path);
  if (!of_path.has_value() || !S_ISDIR(of_path->st_mode)) {
    return false;
  }
  const int owner = open((path + kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (owner < 0) {
    return errno == ENOENT && IsOld(*of_path);
  }
  const bool is_free = flock(owner, LOCK_EX | LOCK_NB) == 0;
  close(owner);
  return is_free;
}

// Whether nobody can still be on the way to this meeting.
bool IsAbandonedSocket(const std::string& path) {
  const std::optional<struct stat> of_path = StatOfOwn(path);
  return of_path.has_value() && S_ISSOCK(of_path->st_mode) && IsOld(*of_path);
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  std::filesystem::directory_iterator entries(parent, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string path = entries->path().string();
    const std::string name = entries->path().filename().string();
    const bool is_folder = absl::StartsWith(name, kPrefix) && IsAbandonedFolder(path);
    const bool is_socket = absl::StartsWith(name, kSocketPrefix) &&
                           absl::EndsWith(name, kSocketSuffix) && IsAbandonedSocket(path);
    if (is_folder || is_socket) {
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
