#include "db/database_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lastflop {
namespace {

// The first bytes of every SQLite file that has been written to, with their NUL
// (sqlite.org/fileformat2.html, section 1.2).
constexpr char kMagic[] = "SQLite format 3";

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", why));
}

}  // namespace

absl::StatusOr<std::string> ResolveDatabaseFile(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) {
    return absl::InvalidArgumentError("--db: the name of the database is empty");
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    if (status.type() != fs::file_type::not_found) {
      return Refuse(path, error.message());
    }
    if (fs::is_symlink(fs::symlink_status(path, error))) {
      return Refuse(path, "is a link to a file that is not there");
    }
    const fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
    return error ? absl::StatusOr<std::string>(Refuse(path, error.message())) : resolved.string();
  }
  if (fs::is_directory(status)) {
    return Refuse(path, "is a folder, not a database");
  }
  if (!fs::is_regular_file(status)) {
    return Refuse(path, "is a device or a pipe, not a database");
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Refuse(path, std::strerror(errno));
  }
  if (const auto num_names = fs::hard_link_count(path, error); !error && num_names > 1) {
    return Refuse(path, absl::StrCat("is one of ", num_names,
                                     " hard links to its file, each with a log of its own; what is "
                                     "written by one name is lost by another"));
  }
  const fs::path resolved = fs::canonical(path, error);
  return error ? absl::StatusOr<std::string>(Refuse(path, error.message())) : resolved.string();
}

absl::Status CheckIsDatabase(const std::string& path) {
  char head[sizeof(kMagic)] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(head, sizeof(head));
  const bool has_bytes = file.gcount() > 0;
  return has_bytes && std::memcmp(head, kMagic, sizeof(kMagic)) != 0
             ? Refuse(path, "is no database")
             : absl::OkStatus();
}

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    return std::nullopt;
  }
  return FileIdentity{.device = status.st_dev, .inode = status.st_ino};
}

}  // namespace lastflop
