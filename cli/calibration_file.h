#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/cost/imported_rows.h"
#include "planner/cost/rows_csv.h"

namespace lastflop {

// Where calibration is kept when no file is named: in the working directory, as lastflop.db is.
inline constexpr char kCalibrationFile[] = "lastflop-calibration.csv";

// The rows of calibration files (written by `lastflop import`, or CSV with its columns; rows
// without a column `l2` are taken as `warm`). Without files the default one is read if it is there.
// Errors of reading name file, line and column.
absl::StatusOr<MeasuredRows> ReadCalibration(const std::vector<std::string>& files, bool warm);

// The same, for the prediction of steps. No rows where there is no file.
absl::StatusOr<ImportedRows> ReadImported(const std::vector<std::string>& files, bool warm);

// "theirs=ours" each. InvalidArgument: no "=", or an empty side.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseColumnMap(
    const std::vector<std::string>& entries);

}  // namespace lastflop
