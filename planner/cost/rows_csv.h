#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/cost/measured_rows.h"

// Rows of measurements as CSV: what `lastflop predict` and `lastflop import` read, and the file
// that calibration is kept in.
namespace lastflop {

// A CSV with a header, as it stands in the file.
struct CsvTable {
  std::string file_name;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // As many cells a row as the header has.
  std::vector<int64_t> lines;                  // Of each row, from 1.
};

// RFC 4180: quoted cells, doubled quotes, CRLF; empty lines are skipped. InvalidArgument, as
// FILE:LINE: message, for a row with another number of cells, an open quote, a column named twice,
// no header.
absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, const std::string& file_name);

// A cell as it has to be written: quoted where it needs to be.
std::string CsvCell(absl::string_view cell);

enum class RowKind { kMoeLayer, kAllReduce };

// Rows of either kind, or of both: a calibration file has a column `kind`.
struct MeasuredRows {
  std::vector<MoeLayerRow> moe;
  std::vector<AllReduceRow> all_reduce;
  // Where each row of the table went: kind, and index in its list.
  std::vector<std::pair<RowKind, size_t>> places;
};

struct ReadRowsOptions {
  // Columns of the file that stand for ours: {"latency", "latency_us"}.
  std::vector<std::pair<std::string, std::string>> column_map;
  bool needs_latency = false;
  bool warm = false;   // Of rows without a column `l2` (warm | cold).
  std::string origin;  // Of rows without a column `origin`.
};

// Reads what rows mean. The kind is told by `kind` (moe_layer | all_reduce), else by the columns.
// Columns of no meaning here are left alone. Every row's system, dtype, distribution and sizes are
// checked. InvalidArgument, as FILE:LINE: column NAME: message.
absl::StatusOr<MeasuredRows> ReadRows(const CsvTable& table, const ReadRowsOptions& options);

// The calibration file's header, and one line for a row.
std::string CalibrationHeader();
std::string CalibrationLine(const MoeLayerRow& row);
std::string CalibrationLine(const AllReduceRow& row);

}  // namespace lastflop
