#include "cli/calibration_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/read_file.h"
#include "common/status_macros.h"

namespace lastflop {

absl::StatusOr<MeasuredRows> ReadCalibration(const std::vector<std::string>& files, bool warm) {
  std::vector<std::string> paths = files;
  std::error_code error;
  if (paths.empty() && std::filesystem::exists(kCalibrationFile, error)) {
    paths.push_back(kCalibrationFile);
  }
  MeasuredRows all;
  for (const std::string& path : paths) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
    LASTFLOP_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, path));
    LASTFLOP_ASSIGN_OR_RETURN(
        MeasuredRows rows,
        ReadRows(table, {.column_map = {}, .needs_latency = true, .warm = warm, .origin = path}));
    all.moe.insert(all.moe.end(), rows.moe.begin(), rows.moe.end());
    all.all_reduce.insert(all.all_reduce.end(), rows.all_reduce.begin(), rows.all_reduce.end());
  }
  return all;
}

absl::StatusOr<ImportedRows> ReadImported(const std::vector<std::string>& files, bool warm) {
  LASTFLOP_ASSIGN_OR_RETURN(const MeasuredRows rows, ReadCalibration(files, warm));
  return ImportedRows::Create(rows);
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseColumnMap(
    const std::vector<std::string>& entries) {
  std::vector<std::pair<std::string, std::string>> map;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--map ", entry, ": THEIRS=OURS, such as latency=latency_us"));
    }
    map.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return map;
}

}  // namespace lastflop
