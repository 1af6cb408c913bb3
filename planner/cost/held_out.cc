#include "planner/cost/held_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/numbers.h"
#include "common/status_macros.h"
#include "planner/cost/all_reduce_predictor.h"
#include "planner/cost/moe_predictor.h"

namespace lastflop {
namespace {

constexpr double kNotableDifference = 1.1;

struct Outcome {
  std::string system;
  std::string kernel;
  double measured = 0;
  RowPrediction prediction;
};

std::optional<std::string> ValueOf(const MoeLayerRow& row, absl::string_view column) {
  if (column == "tp") return absl::StrCat(row.tp);
  if (column == "ep") return absl::StrCat(row.ep);
  if (column == "tokens") return absl::StrCat(row.tokens);
  if (column == "distribution") return row.distribution;
  if (column == "system") return row.system;
  if (column == "kernel_source") return row.kernel_source;
  return std::nullopt;
}
std::optional<std::string> ValueOf(const AllReduceRow& row, absl::string_view column) {
  if (column == "gpus") return absl::StrCat(row.gpus);
  if (column == "bytes") return NumberText(row.bytes);
  if (column == "system") return row.system;
  if (column == "kernel") return row.kernel;
  return std::nullopt;
}
std::string KernelOf(const MoeLayerRow& row) {
  return absl::StrCat(row.kernel_source, " ", row.dtype);
}
std::string KernelOf(const AllReduceRow& row) { return row.kernel; }

// The row of expert parallelism beside a row of tensor parallelism: all else is equal.
auto ArmKey(const MoeLayerRow& row) {
  return std::make_tuple(row.system, row.framework, row.kernel_source, row.dtype, row.distribution,
                         row.tokens, row.hidden, row.inter, row.experts, row.topk, row.tp * row.ep);
}

// Counts the pairs of which at least one arm is held out; `predictor` knows neither of those, and
// may know the other.
absl::Status CompareOrders(const std::vector<MoeLayerRow>& rows, const MoePredictor& predictor,
                           absl::string_view column, const std::string& value,
                           AccuracyReport& report) {
  std::map<decltype(ArmKey(rows[0])), std::pair<const MoeLayerRow*, const MoeLayerRow*>> pairs;
  for (const MoeLayerRow& row : rows) {
    if ((row.tp > 1) != (row.ep > 1)) {
      auto& [tensor, expert] = pairs[ArmKey(row)];
      (row.tp > 1 ? tensor : expert) = &row;
    }
  }
  for (const auto& [key, pair] : pairs) {
    const auto& [tensor, expert] = pair;
    if (tensor == nullptr || expert == nullptr ||
        (ValueOf(*tensor, column) != value && ValueOf(*expert, column) != value)) {
      continue;
    }
    const double measured = *tensor->latency_us / *expert->latency_us;
    if (std::max(measured, 1 / measured) <= kNotableDifference) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(const RowPrediction tensor_us, predictor.Predict(*tensor));
    LASTFLOP_ASSIGN_OR_RETURN(const RowPrediction expert_us, predictor.Predict(*expert));
    ++report.num_pairs;
    report.num_right += (measured > 1) == (tensor_us.us > expert_us.us) ? 1 : 0;
  }
  return absl::OkStatus();
}

// Predicts the rows of one held-out value; `sink` gets the row's index and its prediction.
template <typename Predictor, typename Row, typename Sink>
absl::Status PredictValue(const std::vector<Row>& rows, absl::string_view column,
                          const std::string& value, AccuracyReport& report, const Sink& sink) {
  std::vector<Row> kept;
  std::set<std::pair<std::string, std::string>> known;  // Kernels that are left to fit on.
  const bool by_system = column == "system";
  const auto key = [&](const Row& row) {
    return std::make_pair(
        by_system ? std::string() : row.system,
        column == "kernel" || column == "kernel_source" ? std::string() : KernelOf(row));
  };
  for (const Row& row : rows) {
    if (ValueOf(row, column) != value) {
      kept.push_back(row);
      known.insert(key(row));
    }
  }
  LASTFLOP_ASSIGN_OR_RETURN(const Predictor predictor, Predictor::Create(kept));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (ValueOf(rows[i], column) == value && known.count(key(rows[i])) > 0) {
      LASTFLOP_ASSIGN_OR_RETURN(const RowPrediction prediction, predictor.Predict(rows[i]));
      sink(i, prediction);
    }
  }
  if constexpr (std::is_same_v<Row, MoeLayerRow>) {
    return CompareOrders(rows, predictor, column, value, report);
  }
  return absl::OkStatus();
}

template <typename Predictor, typename Row, typename Sink>
absl::Status PredictColumn(const std::vector<Row>& rows, absl::string_view column,
                           absl::string_view only, AccuracyReport& report, const Sink& sink) {
  std::set<std::string> values;
  for (const Row& row : rows) {
    const std::optional<std::string> value = ValueOf(row, column);
    if (value.has_value() && (only.empty() || *value == only)) {
      values.insert(*value);
    }
  }
  for (const std::string& value : values) {
    LASTFLOP_RETURN_IF_ERROR((PredictValue<Predictor>(rows, column, value, report, sink)));
  }
  return absl::OkStatus();
}

AccuracyLine LineOf(const std::string& system, const std::string& kernel,
                    const std::vector<const Outcome*>& outcomes) {
  std::vector<double> errors;
  AccuracyLine line{.system = system, .kernel = kernel};
  for (const Outcome* outcome : outcomes) {
    errors.push_back(std::abs(outcome->prediction.us / outcome->measured - 1));
    line.inside += outcome->measured >= outcome->prediction.low_us &&
                           outcome->measured <= outcome->prediction.high_us
                       ? 1
                       : 0;
  }
  std::sort(errors.begin(), errors.end());
  // Between the two nearest errors, as usual.
  const auto quantile = [&](double share) {
    const double place = share * static_cast<double>(errors.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, errors.size() - 1);
    const double part = place - static_cast<double>(below);
    return errors[below] * (1 - part) + errors[above] * part;
  };
  line.num_rows = static_cast<int64_t>(errors.size());
  line.inside /= static_cast<double>(errors.size());
  line.median_error = quantile(0.5);
  line.p90_error = quantile(0.9);
  line.max_error = errors.back();
  return line;
}

}  // namespace

absl::StatusOr<AccuracyReport> HoldOut(const MeasuredRows& rows, absl::string_view column,
                                       absl::string_view value) {
  const bool known =
      ValueOf(MoeLayerRow{}, column).has_value() || ValueOf(AllReduceRow{}, column).has_value();
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--held-out ", column,
                     ": there are tp, ep, tokens, distribution, system, kernel_source for ",
                     "MoE layers and gpus, bytes, system, kernel for all-reduces"));
  }
  std::vector<Outcome> outcomes;
  AccuracyReport report;
  LASTFLOP_RETURN_IF_ERROR((PredictColumn<MoePredictor>(
      rows.moe, column, value, report, [&](size_t i, const RowPrediction& prediction) {
        outcomes.push_back(
            {rows.moe[i].system, KernelOf(rows.moe[i]), *rows.moe[i].latency_us, prediction});
      })));
  LASTFLOP_RETURN_IF_ERROR((PredictColumn<AllReducePredictor>(
      rows.all_reduce, column, value, report, [&](size_t i, const RowPrediction& prediction) {
        const AllReduceRow& row = rows.all_reduce[i];
        outcomes.push_back({row.system, row.kernel, *row.latency_us, prediction});
      })));
  if (outcomes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--held-out ", column, value.empty() ? "" : "=", value,
        ": no row has another row of its kernel with another value to be predicted from"));
  }
  std::map<std::pair<std::string, std::string>, std::vector<const Outcome*>> groups;
  std::vector<const Outcome*> all;
  for (const Outcome& outcome : outcomes) {
    groups[{outcome.kernel, outcome.system}].push_back(&outcome);
    all.push_back(&outcome);
  }
  for (const auto& [key, group] : groups) {
    report.lines.push_back(LineOf(key.second, key.first, group));
  }
  report.lines.push_back(LineOf("all", "all", all));
  return report;
}

}  // namespace lastflop
