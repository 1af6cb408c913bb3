#pragma once

#include "absl/status/status.h"
#include "db/change.h"
#include "db/database.h"

namespace lastflop {

// Stores what the coordinator decided. Not thread-safe.
class ChangeStore {
 public:
  explicit ChangeStore(Database& database) : database_(database) {}

  // All of `change` or nothing; sequence numbers are put into its events. FailedPrecondition, and
  // nothing stored, when it would rewrite an attempt that has ended. Other errors as Database.
  absl::Status Apply(Change& change);

 private:
  Database& database_;  // Outlives this.
};

}  // namespace lastflop
