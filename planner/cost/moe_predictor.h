#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/measured_rows.h"
#include "planner/cost/moe_curve.h"

namespace lastflop {

// Predicts MoE layer calls from calibration rows: a curve (planner/cost/moe_curve.h) for each
// kernel, dtype and system that has rows, corrected by the residuals of rows nearby. A system or
// kernel without rows borrows the nearest curve, applied to its own peaks, with a wider interval.
// Without any rows the priors alone predict, as "assumed". Const after Create; thread-compatible.
class MoePredictor {
 public:
  // InvalidArgument: a row without a positive latency, or one that WorkOfRow refuses.
  static absl::StatusOr<MoePredictor> Create(const std::vector<MoeLayerRow>& calibration);

  // InvalidArgument, NotFound: as WorkOfRow.
  absl::StatusOr<RowPrediction> Predict(const MoeLayerRow& row) const;

  size_t num_curves() const { return groups_.size(); }

 private:
  static constexpr size_t kNumFeatures = 5;
  using Features = std::array<double, kNumFeatures>;
  struct Sample {
    MoeLayerRow row;
    Features features;
    double residual = 0;  // log(measured / curve)
  };
  struct Group {
    std::string kernel_source;
    std::string dtype;
    const SystemSpec* system = nullptr;
    MoeParameters parameters{};
    double scatter = 0;  // Of the residuals: 80% are within 1.28 of it.
    std::vector<Sample> samples;
  };
  struct Correction {
    double log_factor = 0;
    double weight = 0;                // Of the samples nearby.
    std::vector<double> same_log_us;  // Of the row itself, when it is among them; often one.
  };

  static Features FeaturesOf(const MoeLayerRow& row, const MoeWork& work);
  static double Distance(const Group& group, const MoeLayerRow& row, const SystemSpec& system);
  static Correction CorrectionFor(const Group& group, const MoeLayerRow& row, const MoeWork& work);
  static RowPrediction PredictFrom(const Group& group, const MoeLayerRow& row, const MoeWork& work);

  std::vector<Group> groups_;
};

}  // namespace lastflop
