#include "db/report_rows.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr absl::string_view kInsertResult = R"sql(
    INSERT INTO results (attempt_id, reported_at_ms, failure_kind, failure_message, failure_rank,
                         breakdown_method, breakdown_step_us, effective_baseline,
                         effective_variant, effective_note, fidelity, warm, data_seed,
                         data_checksum, sampling_s, setup_s, capture_us, environment, warnings)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
            ?19))sql";

constexpr absl::string_view kInsertSample = R"sql(
    INSERT INTO samples (attempt_id, sample_index, launch, draw, baseline_us, variant_us,
                         variant_first, throttled, baseline_wait_us, variant_wait_us,
                         unique_experts, imbalance, baseline_throttled, variant_throttled)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14))sql";

constexpr absl::string_view kInsertCheck = R"sql(
    INSERT INTO checks (attempt_id, moment, ok, max_error, tolerance, error_to_baseline,
                        changed_routes, detail)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8))sql";

constexpr absl::string_view kInsertBreakdown = R"sql(
    INSERT INTO breakdown (attempt_id, entry_index, category, op, us, count, floor_us)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7))sql";

constexpr absl::string_view kSelectResult = R"sql(
    SELECT failure_kind, failure_message, failure_rank, breakdown_method, breakdown_step_us,
           effective_baseline, effective_variant, effective_note, fidelity, warm, data_seed,
           data_checksum, sampling_s, setup_s, capture_us, environment, warnings
      FROM results WHERE attempt_id = ?1)sql";

constexpr absl::string_view kSelectSamples = R"sql(
    SELECT launch, draw, baseline_us, variant_us, variant_first, throttled, baseline_wait_us,
           variant_wait_us, unique_experts, imbalance, baseline_throttled, variant_throttled
      FROM samples WHERE attempt_id = ?1 ORDER BY sample_index)sql";

constexpr absl::string_view kSelectChecks = R"sql(
    SELECT moment, ok, max_error, tolerance, error_to_baseline, changed_routes, detail
      FROM checks WHERE attempt_id = ?1)sql";

constexpr absl::string_view kSelectBreakdown = R"sql(
    SELECT category, op, us, count, floor_us
      FROM breakdown WHERE attempt_id = ?1 ORDER BY entry_index)sql";

absl::Status InsertResult(Database& database, const AttemptResult& result, int64_t reported_at_ms) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare(kInsertResult));
  statement.Bind(result.attempt_id).Bind(reported_at_ms);
  BindFailure(result.failure, statement);
  statement.Bind(result.breakdown_method)
      .Bind(result.breakdown_step_us)
      .Bind(result.effective_baseline)
      .Bind(result.effective_variant)
      .Bind(result.effective_note)
      .Bind(ToWord(result.fidelity))
      .Bind(result.warm)
      .Bind(std::bit_cast<int64_t>(result.data_seed))
      .Bind(result.data_checksum)
      .Bind(result.sampling_s)
      .Bind(result.setup_s)
      .Bind(result.capture_us)
      .Bind(nlohmann::json(result.environment).dump())
      .Bind(nlohmann::json(result.warnings).dump());
  return statement.Run().status();
}

absl::Status InsertSamples(Database& database, const AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare(kInsertSample));
  int64_t sample_index = 0;
  for (const PairSample& sample : result.samples) {
    statement.Bind(result.attempt_id)
        .Bind(sample_index++)
        .Bind(sample.pair.launch)
        .Bind(sample.pair.draw)
        .Bind(sample.pair.baseline_us)
        .Bind(sample.pair.variant_us)
        .Bind(sample.variant_first)
        .Bind(sample.pair.throttled)
        .Bind(sample.baseline_wait_us)
        .Bind(sample.variant_wait_us)
        .Bind(sample.unique_experts)
        .Bind(sample.imbalance)
        .Bind(sample.pair.baseline_throttled)
        .Bind(sample.pair.variant_throttled);
    LASTFLOP_RETURN_IF_ERROR(statement.Run().status());
  }
  return absl::OkStatus();
}

// A check that did not run has no row.
absl::Status InsertCheck(Database& database, const std::string& attempt_id,
                         absl::string_view moment, const CheckResult& check) {
  if (!check.ran) {
    return absl::OkStatus();
  }
  return database
      .Execute(kInsertCheck, attempt_id, moment, check.ok, check.max_error, check.tolerance,
               check.error_to_baseline, check.changed_routes, check.detail)
      .status();
}

absl::Status InsertBreakdown(Database& database, const AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare(kInsertBreakdown));
  int64_t entry_index = 0;
  for (const BreakdownEntry& entry : result.breakdown) {
    statement.Bind(result.attempt_id)
        .Bind(entry_index++)
        .Bind(ToWord(entry.category))
        .Bind(entry.op)
        .Bind(entry.us)
        .Bind(entry.count)
        .Bind(entry.floor_us);
    LASTFLOP_RETURN_IF_ERROR(statement.Run().status());
  }
  return absl::OkStatus();
}

absl::Status ReadSamples(Database& database, AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectSamples));
  rows.Bind(result.attempt_id);
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return absl::OkStatus();
    }
    result.samples.push_back({.pair = {.launch = static_cast<int>(rows.Integer(0)),
                                       .draw = rows.Integer(1),
                                       .baseline_us = rows.Real(2),
                                       .variant_us = rows.Real(3),
                                       .throttled = rows.Boolean(5),
                                       .baseline_throttled = rows.Boolean(10),
                                       .variant_throttled = rows.Boolean(11)},
                              .variant_first = rows.Boolean(4),
                              .baseline_wait_us = rows.Real(6),
                              .variant_wait_us = rows.Real(7),
                              .unique_experts = rows.Real(8),
                              .imbalance = rows.Real(9)});
  }
}

absl::Status ReadChecks(Database& database, AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectChecks));
  rows.Bind(result.attempt_id);
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return absl::OkStatus();
    }
    CheckResult& check = rows.Text(0) == "before" ? result.check_before : result.check_after;
    check = {.ok = rows.Boolean(1),
             .max_error = rows.Real(2),
             .tolerance = rows.Real(3),
             .error_to_baseline = rows.Real(4),
             .changed_routes = rows.Real(5),
             .detail = rows.Text(6)};
  }
}

absl::Status ReadBreakdown(Database& database, AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectBreakdown));
  rows.Bind(result.attempt_id);
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(const OpCategory category,
                              ReadWord<OpCategory>(rows, 0, "breakdown.category"));
    result.breakdown.push_back({.category = category,
                                .op = rows.Text(1),
                                .us = rows.Real(2),
                                .count = rows.Integer(3),
                                .floor_us = rows.Real(4)});
  }
}

// Only a damaged file has text here that is not what InsertResult() wrote.
template <typename T>
absl::Status ParseJsonColumn(const std::string& text, absl::string_view column, T& value) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    json.get_to(value);
  } catch (const nlohmann::json::exception& e) {
    return absl::InternalError(absl::StrCat(column, " is damaged: ", e.what()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InsertReport(Database& database, const AttemptResult& result, int64_t reported_at_ms) {
  LASTFLOP_RETURN_IF_ERROR(InsertResult(database, result, reported_at_ms));
  LASTFLOP_RETURN_IF_ERROR(InsertSamples(database, result));
  LASTFLOP_RETURN_IF_ERROR(InsertCheck(database, result.attempt_id, "before", result.check_before));
  LASTFLOP_RETURN_IF_ERROR(InsertCheck(database, result.attempt_id, "after", result.check_after));
  return InsertBreakdown(database, result);
}

absl::StatusOr<bool> ReadReport(Database& database, AttemptResult& result) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement row, database.Prepare(kSelectResult));
  row.Bind(result.attempt_id);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, row.Step());
  if (!has_row) {
    return false;
  }
  LASTFLOP_ASSIGN_OR_RETURN(result.failure, ReadFailure(row, 0));
  result.breakdown_method = row.Text(3);
  result.breakdown_step_us = row.Real(4);
  result.effective_baseline = row.Text(5);
  result.effective_variant = row.Text(6);
  result.effective_note = row.Text(7);
  LASTFLOP_ASSIGN_OR_RETURN(result.fidelity, ReadWord<Fidelity>(row, 8, "results.fidelity"));
  result.warm = row.Boolean(9);
  result.data_seed = std::bit_cast<uint64_t>(row.Integer(10));
  result.data_checksum = row.Text(11);
  result.sampling_s = row.Real(12);
  result.setup_s = row.Real(13);
  result.capture_us = row.Real(14);
  LASTFLOP_RETURN_IF_ERROR(
      ParseJsonColumn(row.Text(15), "results.environment", result.environment));
  LASTFLOP_RETURN_IF_ERROR(ParseJsonColumn(row.Text(16), "results.warnings", result.warnings));
  LASTFLOP_RETURN_IF_ERROR(ReadSamples(database, result));
  LASTFLOP_RETURN_IF_ERROR(ReadChecks(database, result));
  LASTFLOP_RETURN_IF_ERROR(ReadBreakdown(database, result));
  return true;
}

void BindFailure(const std::optional<Failure>& failure, Statement& statement) {
  if (failure.has_value()) {
    statement.Bind(ToWord(failure->kind)).Bind(failure->message).Bind(failure->rank);
  } else {
    statement.Bind(std::nullopt).Bind(std::nullopt).Bind(std::nullopt);
  }
}

absl::StatusOr<std::optional<Failure>> ReadFailure(const Statement& statement, int first_column) {
  if (statement.IsNull(first_column)) {
    return std::nullopt;
  }
  LASTFLOP_ASSIGN_OR_RETURN(const FailureKind kind,
                            ReadWord<FailureKind>(statement, first_column, "failure_kind"));
  return Failure{.kind = kind,
                 .message = statement.Text(first_column + 1),
                 .rank = static_cast<int>(statement.Integer(first_column + 2))};
}

}  // namespace lastflop
