#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// The one name of a database file, absolute and without links: whoever opens it by another name
// shares its lock and its log. The file need not be there.
//
// InvalidArgument: an empty name. FailedPrecondition: a folder, a device or a pipe; a file that may
// not be read; a link to nothing; a file with several hard links, whose names cannot share a log.
absl::StatusOr<std::string> ResolveDatabaseFile(const std::string& path);

// FailedPrecondition for a file that is neither empty nor a SQLite database. Only before a
// connection of this process has the file: closing it again drops the locks that SQLite has there.
absl::Status CheckIsDatabase(const std::string& path);

// Which file a name stands for.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;

  bool operator==(const FileIdentity&) const = default;
};

// Absent where there is none.
std::optional<FileIdentity> IdentityOf(const std::string& path);

}  // namespace lastflop
