#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/calibration_file.h"
#include "cli/commands.h"
#include "cli/read_file.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/exit_codes.h"
#include "common/status_macros.h"
#include "planner/cost/all_reduce_predictor.h"
#include "planner/cost/held_out.h"
#include "planner/cost/moe_predictor.h"
#include "planner/cost/rows_csv.h"

namespace lastflop {
namespace {

const std::vector<std::string>& AddedColumns() {
  static const std::vector<std::string> columns = {"predicted_us", "low_us", "high_us", "origin"};
  return columns;
}

std::string Micros(double us) { return absl::StrFormat("%.3f", us); }
std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

// The file's own columns and ours behind them; its columns of the same names give way.
Rows MakeRows(const CsvTable& table, const std::vector<RowPrediction>& predictions) {
  Rows rows;
  std::vector<size_t> kept;
  for (size_t i = 0; i < table.header.size(); ++i) {
    const auto& added = AddedColumns();
    if (std::find(added.begin(), added.end(), table.header[i]) == added.end()) {
      kept.push_back(i);
      rows.names.push_back(table.header[i]);
      rows.is_number.push_back(false);
    }
  }
  for (const std::string& name : AddedColumns()) {
    rows.names.push_back(name);
    rows.is_number.push_back(name != "origin");
  }
  for (size_t i = 0; i < table.rows.size(); ++i) {
    std::vector<std::string> cells;
    for (const size_t column : kept) {
      cells.push_back(table.rows[i][column]);
    }
    const RowPrediction& prediction = predictions[i];
    cells.insert(cells.end(), {Micros(prediction.us), Micros(prediction.low_us),
                               Micros(prediction.high_us), prediction.origin});
    rows.cells.push_back(std::move(cells));
  }
  return rows;
}

absl::Status PredictRows(const PredictFlags& flags, const CsvTable& table,
                         const MeasuredRows& asked, Io& io) {
  LASTFLOP_ASSIGN_OR_RETURN(const MeasuredRows calibration,
                            ReadCalibration(flags.calibration, flags.warm));
  LASTFLOP_ASSIGN_OR_RETURN(const MoePredictor moe, MoePredictor::Create(calibration.moe));
  LASTFLOP_ASSIGN_OR_RETURN(const AllReducePredictor all_reduce,
                            AllReducePredictor::Create(calibration.all_reduce));
  if ((calibration.moe.empty() && !asked.moe.empty()) ||
      (calibration.all_reduce.empty() && !asked.all_reduce.empty())) {
    io.err << "lastflop: no calibration rows of this kind: predictions rest on assumed "
              "efficiencies; give --calibration FILE\n";
  }
  std::vector<RowPrediction> predictions;
  for (const auto& [kind, index] : asked.places) {
    RowPrediction prediction;
    if (kind == RowKind::kMoeLayer) {
      LASTFLOP_ASSIGN_OR_RETURN(prediction, moe.Predict(asked.moe[index]));
    } else {
      LASTFLOP_ASSIGN_OR_RETURN(prediction, all_reduce.Predict(asked.all_reduce[index]));
    }
    predictions.push_back(std::move(prediction));
  }
  WriteRows(MakeRows(table, predictions), flags.format, io.out);
  return absl::OkStatus();
}

absl::Status PrintAccuracy(const PredictFlags& flags, const MeasuredRows& rows, Io& io) {
  const size_t equals = flags.held_out.find('=');
  const std::string column = flags.held_out.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : flags.held_out.substr(equals + 1);
  LASTFLOP_ASSIGN_OR_RETURN(const AccuracyReport report, HoldOut(rows, column, value));
  Rows table;
  table.names = {"system", "kernel", "rows", "median_error", "p90_error", "max_error", "inside"};
  table.is_number = {false, false, true, true, true, true, true};
  const bool is_text = flags.format == "table" || flags.format == "md";
  const auto share = [&](double value_of) {
    return is_text ? Percent(value_of) : absl::StrFormat("%.4f", value_of);
  };
  for (const AccuracyLine& line : report.lines) {
    table.cells.push_back({line.system, line.kernel, absl::StrCat(line.num_rows),
                           share(line.median_error), share(line.p90_error), share(line.max_error),
                           share(line.inside)});
  }
  WriteRows(table, flags.format, io.out);
  if (report.num_pairs > 0) {
    const std::string sentence = absl::StrCat(
        "TP against EP in the right order: ", report.num_right, " of ", report.num_pairs,
        " pairs that differ by more than 10% (",
        Percent(static_cast<double>(report.num_right) / static_cast<double>(report.num_pairs)),
        ")\n");
    (is_text ? io.out : io.err) << sentence;
  }
  return absl::OkStatus();
}

absl::Status Predict(const PredictFlags& flags, Io& io) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.rows));
  LASTFLOP_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, flags.rows));
  LASTFLOP_ASSIGN_OR_RETURN(const auto column_map, ParseColumnMap(flags.column_map));
  LASTFLOP_ASSIGN_OR_RETURN(const MeasuredRows rows,
                            ReadRows(table, {.column_map = column_map,
                                             .needs_latency = !flags.held_out.empty(),
                                             .warm = flags.warm,
                                             .origin = flags.rows}));
  return flags.held_out.empty() ? PredictRows(flags, table, rows, io)
                                : PrintAccuracy(flags, rows, io);
}

}  // namespace

int PredictCommand(const PredictFlags& flags, Io& io) {
  if (const absl::Status status = Predict(flags, io); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  io.out << std::flush;
  return kExitFinished;
}

}  // namespace lastflop
