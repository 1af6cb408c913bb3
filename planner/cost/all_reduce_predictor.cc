#include "planner/cost/all_reduce_predictor.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/row_agreement.h"
#include "planner/cost/units.h"

namespace lastflop {
namespace {

constexpr double kPriorLatencyUs = 5;
constexpr double kPriorLinkShare = 0.7;

// Bytes that a rank of a ring sends for each byte of the message.
double RingShare(int64_t ranks) {
  return 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

double TransferMicros(const SystemSpec& system, int64_t ranks, double bytes) {
  return RingShare(ranks) * bytes / (system.link_gb_per_s * kBytesPerMicroPerGbPerS);
}

// Beyond the last size the transfer of what is more is added at the last size's rate.
double AtSize(const std::map<double, double>& sizes, double bytes) {
  const auto above = sizes.lower_bound(bytes);
  if (above == sizes.begin()) {
    return above->second;
  }
  if (above == sizes.end()) {
    const auto last = std::prev(above);
    if (last == sizes.begin()) {
      return last->second * std::max(1.0, bytes / last->first);
    }
    const auto before = std::prev(last);
    const double rate =
        std::max(0.0, last->second - before->second) / (last->first - before->first);
    return last->second + rate * (bytes - last->first);
  }
  const auto below = std::prev(above);
  const double share = std::log(bytes / below->first) / std::log(above->first / below->first);
  return std::exp(std::log(below->second) * (1 - share) + std::log(above->second) * share);
}

// The nearest measured count scaled: a latency a hop for the smallest message, a ring's bytes for
// the rest.
double Extrapolate(const std::map<double, double>& sizes, int64_t from, int64_t ranks,
                   double bytes) {
  const double us = AtSize(sizes, bytes);
  const double latency = std::min(us, sizes.begin()->second);
  const double hops = std::log2(static_cast<double>(ranks)) / std::log2(static_cast<double>(from));
  return latency * hops + (us - latency) * RingShare(ranks) / RingShare(from);
}

absl::Status Check(const AllReduceRow& row) {
  if (row.gpus < 2 || !(row.bytes >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpus=", row.gpus, ", bytes=", row.bytes, ": at least 2 ranks and 1 byte"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AllReducePredictor> AllReducePredictor::Create(
    const std::vector<AllReduceRow>& calibration) {
  AllReducePredictor predictor;
  for (const AllReduceRow& row : calibration) {
    LASTFLOP_RETURN_IF_ERROR(Check(row));
    if (!row.latency_us.has_value() || !(*row.latency_us > 0)) {
      return absl::InvalidArgumentError("a calibration row has no latency_us above 0");
    }
    LASTFLOP_ASSIGN_OR_RETURN(const SystemSpec* system, FindSystem(row.system));
    auto group = std::find_if(predictor.groups_.begin(), predictor.groups_.end(),
                              [&](const Group& candidate) {
                                return candidate.kernel == row.kernel && candidate.system == system;
                              });
    if (group == predictor.groups_.end()) {
      predictor.groups_.emplace_back();
      group = std::prev(predictor.groups_.end());
      group->kernel = row.kernel;
      group->system = system;
    }
    std::vector<double>& repeats = group->repeats[{row.gpus, row.bytes}];
    repeats.push_back(std::log(*row.latency_us));
    group->ranks[row.gpus][row.bytes] = AgreementOf(repeats).us;
  }
  return predictor;
}

absl::StatusOr<RowPrediction> AllReducePredictor::Predict(const AllReduceRow& row) const {
  LASTFLOP_RETURN_IF_ERROR(Check(row));
  LASTFLOP_ASSIGN_OR_RETURN(const SystemSpec* system, FindSystem(row.system));
  const Group* nearest = nullptr;
  double least = 0;
  for (const Group& group : groups_) {
    const double distance = SystemDistance(*group.system, *system) +
                            (group.kernel == row.kernel ? 0 : 10) +
                            (group.system->has_nvlink == system->has_nvlink ? 0 : 3);
    if (nearest == nullptr || distance < least) {
      nearest = &group;
      least = distance;
    }
  }
  RowPrediction prediction;
  double scatter = 0.1;
  if (nearest == nullptr) {
    prediction.us = kPriorLatencyUs * std::log2(static_cast<double>(row.gpus)) +
                    TransferMicros(*system, row.gpus, row.bytes) / kPriorLinkShare;
    prediction.origin = "assumed: no calibration";
    scatter = 0.5;
  } else {
    const auto above = nearest->ranks.lower_bound(row.gpus);
    if (above != nearest->ranks.end() && above->first == row.gpus) {
      prediction.us = AtSize(above->second, row.bytes);
      const auto repeats = nearest->repeats.find({row.gpus, row.bytes});
      prediction.origin = "interpolated";
      scatter = 0.07;
      if (repeats != nearest->repeats.end()) {
        const RowAgreement agreement = AgreementOf(repeats->second);
        prediction.origin = agreement.origin;
        scatter = agreement.scatter;
      }
    } else if (above != nearest->ranks.end() && above != nearest->ranks.begin()) {
      const auto below = std::prev(above);
      const auto place = [](int64_t ranks) { return std::log2(static_cast<double>(ranks)); };
      const double share =
          (place(row.gpus) - place(below->first)) / (place(above->first) - place(below->first));
      const double root = std::sqrt(AtSize(below->second, row.bytes)) * (1 - share) +
                          std::sqrt(AtSize(above->second, row.bytes)) * share;
      prediction.us = root * root;
      prediction.origin = "interpolated";
      scatter = 0.15;
    } else {
      const auto known = above == nearest->ranks.end() ? std::prev(above) : above;
      prediction.us = Extrapolate(known->second, known->first, row.gpus, row.bytes);
      prediction.origin = "modelled";
      scatter = 0.25;
    }
    if (nearest->system != system) {
      // The same latency; transfers by the links' rates.
      const double latency = std::min(prediction.us, kPriorLatencyUs * 4);
      prediction.us = latency + (prediction.us - latency) * nearest->system->link_gb_per_s /
                                    system->link_gb_per_s;
    }
    if (least > 0) {
      prediction.origin = absl::StrCat("assumed: rows of ", nearest->system->name, " ",
                                       nearest->kernel, " scaled by link");
      scatter = std::hypot(scatter, 0.2 + 0.05 * std::min(least, 10.0));
    }
  }
  // The least any algorithm sends, at the link's rate.
  prediction.floor_us = TransferMicros(*system, row.gpus, row.bytes);
  if (!absl::StartsWith(prediction.origin, "measured")) {
    prediction.us = std::max(prediction.us, prediction.floor_us);
  }
  prediction.low_us = prediction.us * std::exp(-kEighty * scatter);
  prediction.high_us = prediction.us * std::exp(kEighty * scatter);
  if (!absl::StartsWith(prediction.origin, "measured")) {
    prediction.low_us = std::max(prediction.low_us, prediction.floor_us);
  }
  return prediction;
}

}  // namespace lastflop
