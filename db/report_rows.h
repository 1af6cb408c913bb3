#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/trial.h"
#include "db/database.h"

// A report as rows of results, samples, checks and breakdown: written and read in one file, so that
// the two cannot drift apart. No transaction of its own.
namespace lastflop {

// AlreadyExists when the attempt has a report.
absl::Status InsertReport(Database& database, const AttemptResult& result, int64_t reported_at_ms);

// Fills all but the ids and the launch. False: there is no report.
absl::StatusOr<bool> ReadReport(Database& database, AttemptResult& result);

// Three columns: kind, message and rank, NULL without a failure.
void BindFailure(const std::optional<Failure>& failure, Statement& statement);
absl::StatusOr<std::optional<Failure>> ReadFailure(const Statement& statement, int first_column);

// A word that this binary does not know is Internal and names the column.
template <typename E>
absl::StatusOr<E> ReadWord(const Statement& statement, int column, absl::string_view name) {
  const std::string word = statement.Text(column);
  const std::optional<E> value = FromWord<E>(word);
  if (!value.has_value()) {
    return absl::InternalError(std::string(name) + " holds \"" + word + "\", which is no word of " +
                               AllWords<E>());
  }
  return *value;
}

}  // namespace lastflop
