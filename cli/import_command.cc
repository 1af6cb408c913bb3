#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/calibration_file.h"
#include "cli/commands.h"
#include "cli/read_file.h"
#include "cli/read_results.h"
#include "common/exit_codes.h"
#include "common/status_macros.h"
#include "planner/cost/rows_csv.h"

namespace lastflop {
namespace {

// The whole file under another name first, so that nobody reads half of one.
absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".new");
  std::ofstream file(draft, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file.good()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--into ", path, ": ", draft, " cannot be written: ", std::strerror(errno)));
  }
  file.close();
  std::error_code error;
  std::filesystem::rename(draft, path, error);
  return error ? absl::InvalidArgumentError(
                     absl::StrCat("--into ", path, ": cannot be written: ", error.message()))
               : absl::OkStatus();
}

absl::Status Import(const ImportFlags& flags, Io& io) {
  const std::string into = flags.into.empty() ? kCalibrationFile : flags.into;
  if (std::error_code ignored; std::filesystem::equivalent(flags.file, into, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--into ", into, ": is the file to import, which would be written over; name another"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const auto column_map, ParseColumnMap(flags.column_map));
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.file));
  LASTFLOP_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, flags.file));
  LASTFLOP_ASSIGN_OR_RETURN(
      const MeasuredRows rows,
      ReadRows(table, {.column_map = column_map,
                       .needs_latency = true,
                       .warm = flags.warm,
                       .origin = flags.origin.empty() ? flags.file : flags.origin}));
  std::string stored;
  std::set<std::string> lines;  // A row that is there already is not stored twice.
  std::error_code error;
  if (std::filesystem::exists(into, error)) {
    // Read as what it must be, so that a wrong file is refused before it is written over.
    LASTFLOP_ASSIGN_OR_RETURN(const MeasuredRows known, ReadCalibration({into}, flags.warm));
    for (const MoeLayerRow& row : known.moe) {
      lines.insert(CalibrationLine(row));
    }
    for (const AllReduceRow& row : known.all_reduce) {
      lines.insert(CalibrationLine(row));
    }
  }
  const size_t num_known = lines.size();
  for (const MoeLayerRow& row : rows.moe) {
    lines.insert(CalibrationLine(row));
  }
  for (const AllReduceRow& row : rows.all_reduce) {
    lines.insert(CalibrationLine(row));
  }
  stored = CalibrationHeader();
  for (const std::string& line : lines) {
    stored += line;
  }
  LASTFLOP_RETURN_IF_ERROR(ReplaceFile(into, stored));
  io.out << "imported " << lines.size() - num_known << " rows into " << into << " ("
         << rows.moe.size() << " of MoE layers and " << rows.all_reduce.size()
         << " of all-reduces read, " << lines.size() << " stored)\n";
  return absl::OkStatus();
}

}  // namespace

int ImportCommand(const ImportFlags& flags, Io& io) {
  if (const absl::Status status = Import(flags, io); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  io.out << std::flush;
  return kExitFinished;
}

}  // namespace lastflop
