#include "db/schema.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

absl::StatusOr<int64_t> VersionOf(Database& database) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare("PRAGMA user_version"));
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  return has_row ? statement.Integer(0) : 0;
}

absl::Status NewerError(const Database& database, int64_t version, size_t num_files) {
  return absl::FailedPreconditionError(absl::StrCat("the database ", database.path(),
                                                    " has schema ", version,
                                                    ", this binary knows up to ", num_files));
}

}  // namespace

absl::Status MigrateSchema(Database& database, std::span<const SchemaFile> files) {
  // Read again under the write lock of each step: two processes may open a new file at once.
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    LASTFLOP_ASSIGN_OR_RETURN(const int64_t version, VersionOf(database));
    if (version > static_cast<int64_t>(files.size())) {
      return NewerError(database, version, files.size());
    }
    if (version == static_cast<int64_t>(files.size())) {
      return absl::OkStatus();
    }
    const SchemaFile& file = files[static_cast<size_t>(version)];
    if (const absl::Status status = database.ExecuteScript(std::string(file.sql)); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(file.name, ": ", status.message()));
    }
    LASTFLOP_RETURN_IF_ERROR(
        database.ExecuteScript(absl::StrCat("PRAGMA user_version = ", version + 1)));
    LASTFLOP_RETURN_IF_ERROR(transaction.Commit());
  }
}

absl::Status CheckSchema(Database& database) {
  LASTFLOP_ASSIGN_OR_RETURN(const int64_t version, VersionOf(database));
  const size_t num_files = SchemaFiles().size();
  if (version > static_cast<int64_t>(num_files)) {
    return NewerError(database, version, num_files);
  }
  if (version < static_cast<int64_t>(num_files)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the database ", database.path(), " has schema ", version, " of ", num_files,
        version == 0 ? ": it is not lastflop's" : ": start lastflopd on it once to bring it up"));
  }
  return absl::OkStatus();
}

}  // namespace lastflop
