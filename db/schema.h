#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "db/database.h"

namespace lastflop {

// One file of db/schema/. Version n is the n-th file.
struct SchemaFile {
  absl::string_view name;  // "0001_campaigns.sql"
  absl::string_view sql;
};

// All of them in order, built into the binary.
std::span<const SchemaFile> SchemaFiles();

// Brings the database to the newest schema, each file in a transaction of its own. `files` is for
// tests of old databases. FailedPrecondition: the database is newer than this binary.
absl::Status MigrateSchema(Database& database, std::span<const SchemaFile> files = SchemaFiles());

// For readers, which cannot migrate. FailedPrecondition: older or newer than this binary.
absl::Status CheckSchema(Database& database);

}  // namespace lastflop
