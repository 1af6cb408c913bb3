#include "planner/cost/moe_predictor.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/row_agreement.h"
#include "planner/cost/units.h"

namespace lastflop {
namespace {

constexpr double kShrink = 0.5;                 // Samples' worth of doubt about a residual nearby.
constexpr double kExtrapolationScatter = 0.06;  // Where no sample is near.
constexpr double kPriorScatter = 0.4;
// Lengths over which residuals fade, in logarithms of: tokens, pairs an expert, bytes, width, tiles
// an expert.
constexpr std::array<double, 5> kLengths = {0.7, 0.7, 0.7, 0.5, 0.7};

absl::string_view KernelFamily(absl::string_view kernel) {
  for (const absl::string_view family : {"marlin", "triton", "cutlass"}) {
    if (absl::StrContains(kernel, family)) {
      return family;
    }
  }
  return kernel;
}

auto KeyOf(const MoeLayerRow& row) {
  return std::tie(row.system, row.kernel_source, row.dtype, row.hidden, row.inter, row.experts,
                  row.topk, row.tp, row.ep, row.distribution, row.tokens, row.warm);
}

}  // namespace

MoePredictor::Features MoePredictor::FeaturesOf(const MoeLayerRow& row, const MoeWork& work) {
  const ExpertCounts& counts = work.counts;
  return {std::log(static_cast<double>(row.tokens)),
          std::log(std::max(counts.pairs, 0.1) / counts.unique_experts),
          std::log(counts.unique_experts * work.expert_bytes),
          std::log(static_cast<double>(row.inter) / static_cast<double>(row.tp)),
          std::log(counts.tiles / counts.unique_experts)};
}

absl::StatusOr<MoePredictor> MoePredictor::Create(const std::vector<MoeLayerRow>& calibration) {
  MoePredictor predictor;
  std::vector<std::vector<MoeWork>> works;
  std::vector<std::vector<double>> latencies;
  for (const MoeLayerRow& row : calibration) {
    if (!row.latency_us.has_value() || !(*row.latency_us > 0)) {
      return absl::InvalidArgumentError("a calibration row has no latency_us above 0");
    }
    LASTFLOP_ASSIGN_OR_RETURN(MoeWork work, WorkOfRow(row));
    size_t g = 0;
    while (g < predictor.groups_.size() &&
           (predictor.groups_[g].kernel_source != row.kernel_source ||
            predictor.groups_[g].dtype != row.dtype ||
            predictor.groups_[g].system != work.system)) {
      ++g;
    }
    if (g == predictor.groups_.size()) {
      predictor.groups_.emplace_back();
      predictor.groups_[g].kernel_source = row.kernel_source;
      predictor.groups_[g].dtype = row.dtype;
      predictor.groups_[g].system = work.system;
      works.emplace_back();
      latencies.emplace_back();
    }
    predictor.groups_[g].samples.push_back({.row = row, .features = FeaturesOf(row, work)});
    works[g].push_back(work);
    latencies[g].push_back(*row.latency_us);
  }
  for (size_t g = 0; g < predictor.groups_.size(); ++g) {
    Group& group = predictor.groups_[g];
    group.parameters = FitMoeCurve(works[g], latencies[g], group.dtype);
    std::vector<double> sizes;
    for (size_t i = 0; i < works[g].size(); ++i) {
      Sample& sample = group.samples[i];
      sample.residual = std::log(latencies[g][i] / MoeLayerMicros(works[g][i], group.parameters));
      sizes.push_back(std::abs(sample.residual));
    }
    std::sort(sizes.begin(), sizes.end());
    // The 80% quantile, pulled up where few rows say little.
    const double quantile = sizes[sizes.size() * 8 / 10];
    group.scatter =
        std::max(quantile / kEighty, kMeasuredScatter) + 0.2 / static_cast<double>(sizes.size());
  }
  return predictor;
}

// How little a group says about a row: 0 for the same kernel, format and system.
double MoePredictor::Distance(const Group& group, const MoeLayerRow& row,
                              const SystemSpec& system) {
  double distance = SystemDistance(*group.system, system);
  if (group.dtype != row.dtype) {
    distance += 10;
  }
  if (group.kernel_source != row.kernel_source) {
    distance += KernelFamily(group.kernel_source) == KernelFamily(row.kernel_source) ? 3 : 6;
  }
  return distance;
}

MoePredictor::Correction MoePredictor::CorrectionFor(const Group& group, const MoeLayerRow& row,
                                                     const MoeWork& work) {
  const Features features = FeaturesOf(row, work);
  Correction correction;
  double sum = 0;
  bool has_version = false;
  for (const Sample& sample : group.samples) {
    double squares = 0;
    for (size_t i = 0; i < kNumFeatures; ++i) {
      const double apart = (sample.features[i] - features[i]) / kLengths[i];
      squares += apart * apart;
    }
    double weight = std::exp(-0.5 * squares);
    weight *= (sample.row.distribution == "balanced") == (row.distribution == "balanced") ? 1 : 0.5;
    weight *= (sample.row.ep > 1) == (row.ep > 1) ? 1 : 0.2;
    weight *= sample.row.warm == row.warm ? 1 : 0.2;
    correction.weight += weight;
    sum += weight * sample.residual;
    if (KeyOf(sample.row) == KeyOf(row)) {
      const bool is_version =
          sample.row.framework == row.framework && sample.row.version == row.version;
      if (is_version && !has_version) {
        correction.same_log_us.clear();  // The very version says more than others.
      }
      if (is_version || !has_version) {
        correction.same_log_us.push_back(std::log(*sample.row.latency_us));
      }
      has_version = has_version || is_version;
    }
  }
  correction.log_factor = sum / (correction.weight + kShrink);
  return correction;
}

RowPrediction MoePredictor::PredictFrom(const Group& group, const MoeLayerRow& row,
                                        const MoeWork& work) {
  RowPrediction prediction;
  prediction.us = MoeLayerMicros(work, group.parameters);
  double scatter = group.scatter;
  const double distance = Distance(group, row, *work.system);
  if (distance == 0) {
    const Correction correction = CorrectionFor(group, row, work);
    if (!correction.same_log_us.empty()) {
      const RowAgreement agreement = AgreementOf(correction.same_log_us);
      prediction.us = agreement.us;
      prediction.origin = agreement.origin;
      scatter = agreement.scatter;
    } else {
      prediction.us *= std::exp(correction.log_factor);
      const bool is_near = correction.weight > kShrink;
      prediction.origin = is_near ? "interpolated" : "modelled";
      scatter = std::hypot(scatter, is_near ? 0 : kExtrapolationScatter);
    }
  } else {
    prediction.origin = "assumed: curve of";
    if (group.system != work.system) {
      absl::StrAppend(&prediction.origin, " ", group.system->name,
                      " scaled to this machine's peaks");
    }
    if (group.kernel_source != row.kernel_source || group.dtype != row.dtype) {
      absl::StrAppend(&prediction.origin, group.system != work.system ? "; kernel " : " kernel ",
                      group.kernel_source, " ", group.dtype);
    }
    scatter = std::hypot(scatter, 0.08 + 0.04 * std::min(distance, 10.0));
  }
  prediction.low_us = prediction.us * std::exp(-kEighty * scatter);
  prediction.high_us = prediction.us * std::exp(kEighty * scatter);
  return prediction;
}

absl::StatusOr<RowPrediction> MoePredictor::Predict(const MoeLayerRow& row) const {
  LASTFLOP_ASSIGN_OR_RETURN(const MoeWork work, WorkOfRow(row));
  const Group* nearest = nullptr;
  for (const Group& group : groups_) {
    if (nearest == nullptr ||
        Distance(group, row, *work.system) < Distance(*nearest, row, *work.system)) {
      nearest = &group;
    }
  }
  RowPrediction prediction;
  if (nearest == nullptr) {
    prediction.us = MoeLayerMicros(work, PriorMean(row.dtype));
    prediction.low_us = prediction.us * std::exp(-kEighty * kPriorScatter);
    prediction.high_us = prediction.us * std::exp(kEighty * kPriorScatter);
    prediction.origin = "assumed: no calibration";
  } else if (nearest->dtype == row.dtype) {
    prediction = PredictFrom(*nearest, row, work);
  } else {
    // Another format unpacks at its own rate.
    Group adapted = *nearest;
    adapted.parameters[2] += PriorMean(row.dtype)[2] - PriorMean(nearest->dtype)[2];
    prediction = PredictFrom(adapted, row, work);
  }
  prediction.floor_us = MoeFloorMicros(work);
  if (!absl::StartsWith(prediction.origin,
                        "measured")) {  // A measurement below the floor is shown as it is.
    prediction.us = std::max(prediction.us, prediction.floor_us);
    prediction.low_us = std::max(prediction.low_us, prediction.floor_us);
  }
  prediction.high_us = std::max(prediction.high_us, prediction.us);
  return prediction;
}

}  // namespace lastflop
