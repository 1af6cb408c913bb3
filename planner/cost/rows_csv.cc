#include "planner/cost/rows_csv.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/numbers.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "planner/cost/moe_curve.h"

namespace lastflop {
namespace {

const std::vector<absl::string_view> kMoeColumns = {"system", "kernel_source", "dtype", "hidden",
                                                    "inter",  "experts",       "topk",  "tp",
                                                    "ep",     "distribution",  "tokens"};
const std::vector<absl::string_view> kAllReduceColumns = {"system", "kernel", "gpus", "bytes"};
const std::vector<absl::string_view> kCalibrationColumns = {
    "kind",         "origin", "l2",     "system",  "framework", "version", "kernel_source",
    "dtype",        "hidden", "inter",  "experts", "topk",      "tp",      "ep",
    "distribution", "tokens", "source", "kernel",  "gpus",      "bytes",   "latency_us"};

// Far beyond every model and batch that is served, and still counted in a moment.
constexpr int64_t kMostFeatures = int64_t{1} << 20;
constexpr int64_t kMostExperts = 1 << 14;
constexpr int64_t kMostRanks = 1 << 14;
constexpr int64_t kMostTokens = int64_t{1} << 24;

// Splits the text into cells, one record at a time.
class CsvReader {
 public:
  CsvReader(absl::string_view text, const std::string& file_name)
      : text_(text), file_name_(file_name) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") {
      at_ = 3;
    }
  }

  // The next record that is not empty; false at the end.
  absl::StatusOr<bool> Next(std::vector<std::string>& cells, int64_t& line) {
    while (at_ < text_.size()) {
      cells.clear();
      line = line_;
      LASTFLOP_RETURN_IF_ERROR(Record(cells));
      if (cells.size() > 1 || !cells[0].empty()) {
        return true;
      }
    }
    return false;
  }

 private:
  absl::Status Record(std::vector<std::string>& cells) {
    std::string cell;
    const int64_t first_line = line_;
    bool is_quoted = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (is_quoted) {
        if (c == '"' && at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
          cell += c;
          ++at_;
        } else if (c == '"') {
          is_quoted = false;
        } else {
          line_ += c == '\n' ? 1 : 0;
          cell += c;
        }
      } else if (c == '"') {
        is_quoted = true;
      } else if (c == ',') {
        cells.push_back(std::string(absl::StripAsciiWhitespace(cell)));
        cell.clear();
      } else if (c == '\n') {
        ++at_;
        ++line_;
        break;
      } else if (c != '\r') {
        cell += c;
      }
    }
    cells.push_back(std::string(absl::StripAsciiWhitespace(cell)));
    return is_quoted ? absl::InvalidArgumentError(absl::StrCat(
                           file_name_, ":", first_line, ": a quote is opened and never closed"))
                     : absl::OkStatus();
  }

  absl::string_view text_;
  const std::string& file_name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

// One row's cells by column name.
class RowReader {
 public:
  RowReader(const CsvTable& table, const std::vector<std::string>& names, size_t row)
      : table_(table), names_(names), row_(row) {}

  absl::Status Error(absl::string_view column, absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(table_.file_name, ":", table_.lines[row_],
                                                   ": column ", column, ": ", message));
  }
  bool Has(absl::string_view column) const { return !Text(column).empty(); }
  // "" where there is no such column.
  absl::string_view Text(absl::string_view column) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == column) {
        return table_.rows[row_][i];
      }
    }
    return "";
  }
  absl::Status Read(absl::string_view column, std::string& out) const {
    out = std::string(Text(column));
    return out.empty() ? Error(column, "is empty") : absl::OkStatus();
  }
  absl::Status Read(absl::string_view column, int64_t most, int64_t& out) const {
    const absl::StatusOr<int64_t> value = ParseInteger(Text(column));
    if (!value.ok() || *value < 1 || *value > most) {
      return Error(column,
                   absl::StrCat("\"", Text(column),
                                "\" must be a whole number of at least 1 and at most ", most));
    }
    out = *value;
    return absl::OkStatus();
  }
  absl::Status Read(absl::string_view column, double& out) const {
    const absl::StatusOr<double> value = ParseNumber(Text(column));
    if (!value.ok() || !(*value > 0)) {
      return Error(column, absl::StrCat("\"", Text(column), "\" must be a number above 0"));
    }
    out = *value;
    return absl::OkStatus();
  }

 private:
  const CsvTable& table_;                  // Outlives this.
  const std::vector<std::string>& names_;  // Outlives this.
  size_t row_;
};

absl::Status ReadLatency(const RowReader& reader, bool needs_latency,
                         std::optional<double>& latency_us) {
  if (needs_latency || reader.Has("latency_us")) {
    double value = 0;
    LASTFLOP_RETURN_IF_ERROR(reader.Read("latency_us", value));
    latency_us = value;
  }
  return absl::OkStatus();
}

absl::StatusOr<MoeLayerRow> ReadMoeRow(const RowReader& reader, const ReadRowsOptions& options) {
  MoeLayerRow row;
  row.framework = std::string(reader.Text("framework"));
  row.version = std::string(reader.Text("version"));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("system", row.system));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("kernel_source", row.kernel_source));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("dtype", row.dtype));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("hidden", kMostFeatures, row.hidden));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("inter", kMostFeatures, row.inter));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("experts", kMostExperts, row.experts));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("topk", kMostExperts, row.topk));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("tp", kMostRanks, row.tp));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("ep", kMostRanks, row.ep));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("distribution", row.distribution));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("tokens", kMostTokens, row.tokens));
  LASTFLOP_RETURN_IF_ERROR(ReadLatency(reader, options.needs_latency, row.latency_us));
  row.warm = options.warm;
  if (reader.Has("l2")) {
    if (reader.Text("l2") != "warm" && reader.Text("l2") != "cold") {
      return reader.Error("l2", absl::StrCat("\"", reader.Text("l2"), "\" must be warm or cold"));
    }
    row.warm = reader.Text("l2") == "warm";
  }
  row.origin = reader.Has("origin") ? std::string(reader.Text("origin")) : options.origin;
  if (const absl::StatusOr<const SystemSpec*> system = FindSystem(row.system); !system.ok()) {
    return reader.Error("system", system.status().message());
  }
  if (const absl::StatusOr<MoeWork> work = WorkOfRow(row); !work.ok()) {
    const absl::string_view message = work.status().message();
    const auto is_about = [&](absl::string_view word) {
      return message.substr(0, word.size()) == word;
    };
    return reader.Error(is_about("dtype")          ? "dtype"
                        : is_about("distribution") ? "distribution"
                        : is_about("hidden")       ? "tp"
                                                   : "ep",
                        message);
  }
  return row;
}

absl::StatusOr<AllReduceRow> ReadAllReduceRow(const RowReader& reader,
                                              const ReadRowsOptions& options) {
  AllReduceRow row;
  row.source = std::string(reader.Text("source"));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("system", row.system));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("kernel", row.kernel));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("gpus", kMostRanks, row.gpus));
  LASTFLOP_RETURN_IF_ERROR(reader.Read("bytes", row.bytes));
  LASTFLOP_RETURN_IF_ERROR(ReadLatency(reader, options.needs_latency, row.latency_us));
  row.origin = reader.Has("origin") ? std::string(reader.Text("origin")) : options.origin;
  if (const absl::StatusOr<const SystemSpec*> system = FindSystem(row.system); !system.ok()) {
    return reader.Error("system", system.status().message());
  }
  if (row.gpus < 2) {
    return reader.Error("gpus", "an all-reduce has at least 2 ranks");
  }
  return row;
}

// The columns under our names.
absl::StatusOr<std::vector<std::string>> MappedNames(const CsvTable& table,
                                                     const ReadRowsOptions& options) {
  std::vector<std::string> names = table.header;
  for (const auto& [theirs, ours] : options.column_map) {
    const auto column = std::find(table.header.begin(), table.header.end(), theirs);
    if (column == table.header.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(table.file_name, ":1: no column ", theirs, " to be read as ", ours,
                       DidYouMean(theirs, {table.header.begin(), table.header.end()})));
    }
    if (std::find(kCalibrationColumns.begin(), kCalibrationColumns.end(), ours) ==
        kCalibrationColumns.end()) {
      return absl::InvalidArgumentError(absl::StrCat("column map ", theirs, "=", ours,
                                                     ": ours are ",
                                                     absl::StrJoin(kCalibrationColumns, ", ")));
    }
    // A column of ours that the map names another for is not read twice.
    const size_t index = static_cast<size_t>(column - table.header.begin());
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == ours && i != index) {
        names[i].clear();
      }
    }
    names[index] = ours;
  }
  return names;
}

std::vector<absl::string_view> Missing(const std::vector<std::string>& names,
                                       const std::vector<absl::string_view>& columns) {
  std::vector<absl::string_view> missing;
  for (const absl::string_view column : columns) {
    if (std::find(names.begin(), names.end(), column) == names.end()) {
      missing.push_back(column);
    }
  }
  return missing;
}

absl::StatusOr<RowKind> KindOfColumns(const CsvTable& table,
                                      const std::vector<std::string>& names) {
  const std::vector<absl::string_view> moe = Missing(names, kMoeColumns);
  const std::vector<absl::string_view> all_reduce = Missing(names, kAllReduceColumns);
  if (moe.empty() || all_reduce.empty()) {
    return moe.empty() ? RowKind::kMoeLayer : RowKind::kAllReduce;
  }
  const bool nearer_moe =
      moe.size() * kAllReduceColumns.size() <= all_reduce.size() * kMoeColumns.size();
  return absl::InvalidArgumentError(absl::StrCat(
      table.file_name, ":1: no column ", absl::StrJoin(nearer_moe ? moe : all_reduce, ", "),
      "; rows of ", nearer_moe ? "MoE layers" : "all-reduces", " have ",
      absl::StrJoin(nearer_moe ? kMoeColumns : kAllReduceColumns, ",")));
}

}  // namespace

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, const std::string& file_name) {
  CsvTable table;
  table.file_name = file_name;
  CsvReader reader(text, file_name);
  std::vector<std::string> cells;
  int64_t line = 0;
  LASTFLOP_ASSIGN_OR_RETURN(bool has_record, reader.Next(table.header, line));
  if (!has_record) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ":1: no header, the file is empty"));
  }
  for (size_t i = 0; i < table.header.size(); ++i) {
    if (std::count(table.header.begin(), table.header.end(), table.header[i]) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_name, ":", line, ": column ", table.header[i], " stands twice"));
    }
  }
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(has_record, reader.Next(cells, line));
    if (!has_record) {
      return table;
    }
    if (cells.size() != table.header.size()) {
      return absl::InvalidArgumentError(absl::StrCat(file_name, ":", line, ": ", cells.size(),
                                                     " cells, the header has ",
                                                     table.header.size()));
    }
    table.rows.push_back(cells);
    table.lines.push_back(line);
  }
}

std::string CsvCell(absl::string_view cell) {
  if (cell.find_first_of(",\"\r\n") == absl::string_view::npos) {
    return std::string(cell);
  }
  return absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
}

absl::StatusOr<MeasuredRows> ReadRows(const CsvTable& table, const ReadRowsOptions& options) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, MappedNames(table, options));
  const bool has_kind = std::find(names.begin(), names.end(), "kind") != names.end();
  RowKind kind = RowKind::kMoeLayer;
  if (!has_kind) {
    LASTFLOP_ASSIGN_OR_RETURN(kind, KindOfColumns(table, names));
  }
  if (options.needs_latency && !Missing(names, {"latency_us"}).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.file_name, ":1: no column latency_us: nothing to fit on"));
  }
  MeasuredRows rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const RowReader reader(table, names, i);
    if (has_kind) {
      const absl::string_view word = reader.Text("kind");
      if (word != "moe_layer" && word != "all_reduce") {
        return reader.Error("kind", absl::StrCat("\"", word, "\" must be moe_layer or all_reduce"));
      }
      kind = word == "moe_layer" ? RowKind::kMoeLayer : RowKind::kAllReduce;
    }
    if (kind == RowKind::kMoeLayer) {
      LASTFLOP_ASSIGN_OR_RETURN(MoeLayerRow row, ReadMoeRow(reader, options));
      rows.places.emplace_back(kind, rows.moe.size());
      rows.moe.push_back(std::move(row));
    } else {
      LASTFLOP_ASSIGN_OR_RETURN(AllReduceRow row, ReadAllReduceRow(reader, options));
      rows.places.emplace_back(kind, rows.all_reduce.size());
      rows.all_reduce.push_back(std::move(row));
    }
  }
  return rows;
}

std::string CalibrationHeader() {
  return absl::StrCat(absl::StrJoin(kCalibrationColumns, ","), "\n");
}

std::string CalibrationLine(const MoeLayerRow& row) {
  return absl::StrCat("moe_layer,", CsvCell(row.origin), ",", row.warm ? "warm" : "cold", ",",
                      CsvCell(row.system), ",", CsvCell(row.framework), ",", CsvCell(row.version),
                      ",", CsvCell(row.kernel_source), ",", CsvCell(row.dtype), ",", row.hidden,
                      ",", row.inter, ",", row.experts, ",", row.topk, ",", row.tp, ",", row.ep,
                      ",", CsvCell(row.distribution), ",", row.tokens, ",,,,,",
                      NumberText(row.latency_us.value_or(0)), "\n");
}

std::string CalibrationLine(const AllReduceRow& row) {
  return absl::StrCat("all_reduce,", CsvCell(row.origin), ",,", CsvCell(row.system),
                      ",,,,,,,,,,,,,", CsvCell(row.source), ",", CsvCell(row.kernel), ",", row.gpus,
                      ",", NumberText(row.bytes), ",", NumberText(row.latency_us.value_or(0)),
                      "\n");
}

}  // namespace lastflop
