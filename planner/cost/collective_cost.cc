#include "planner/cost/collective_cost.h"

#include <cmath>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/units.h"
#include "step/collective_model.h"
#include "step/work.h"

namespace lastflop {
namespace {

constexpr double kOneShotLatencyUs = 2.5;
constexpr double kTwoShotLatencyUs = 4.0;
constexpr double kAllToAllLatencyUs = 6.0;
constexpr double kTransferLatencyUs = 8.0;

TimeEstimate Spread(double us, double scatter, Origin origin) {
  return {.us = us,
          .low_us = us * std::exp(-kEighty * scatter),
          .high_us = us * std::exp(kEighty * scatter),
          .origin = origin};
}

absl::StatusOr<TimeEstimate> EstimateAllReduce(const Op& op, const AllReduceShape& shape,
                                               const Machine& machine, const MachineRates& rates,
                                               const OpCurves& curves) {
  const double bytes = static_cast<double>(shape.elements) * PayloadBytes(shape.payload);
  const auto ranks = static_cast<double>(shape.ranks);
  if (shape.algorithm == AllReduceAlgorithm::kOneShot) {
    return Spread(kOneShotLatencyUs + (ranks - 1) * bytes / rates.link_bytes_per_us, 0.4,
                  Origin::kAssumed);
  }
  if (shape.algorithm == AllReduceAlgorithm::kTwoShot) {
    return Spread(kTwoShotLatencyUs + op.work.link_bytes / rates.link_bytes_per_us, 0.4,
                  Origin::kAssumed);
  }
  const OpCurve& curve = curves.of[static_cast<size_t>(OpFamily::kNcclAllReduce)];
  const double transfer = op.work.link_bytes / (curve.byte_share * rates.link_bytes_per_us);
  if (machine.measured_link_gb_per_s.has_value() && machine.collective_latency_us.has_value()) {
    // Of this very machine, though perhaps of another number of ranks.
    LASTFLOP_ASSIGN_OR_RETURN(const double us, ModelledCollectiveMicros(op, machine));
    return Spread(us, 0.25, Origin::kInterpolated);
  }
  if (rates.is_curves_machine && shape.ranks == 2) {
    return Spread(curve.latency_us + curves.gap_us_per_nccl + transfer, curve.scatter,
                  curve.origin);
  }
  if (machine.collective_latency_us.has_value()) {
    LASTFLOP_ASSIGN_OR_RETURN(const double us, ModelledCollectiveMicros(op, machine));
    return Spread(us, 0.3, Origin::kModelled);
  }
  return Spread(curve.latency_us * std::log2(ranks) + transfer, 0.5, Origin::kAssumed);
}

}  // namespace

absl::StatusOr<TimeEstimate> EstimateCollective(const Op& op, const Machine& machine,
                                                const MachineRates& rates, const OpCurves& curves) {
  const auto* reduce = std::get_if<AllReduceShape>(&op.shape);
  const auto* exchange = std::get_if<AllToAllShape>(&op.shape);
  const auto* transfer = std::get_if<StageTransferShape>(&op.shape);
  if ((reduce != nullptr && reduce->ranks <= 1) || (exchange != nullptr && exchange->ranks <= 1) ||
      (transfer != nullptr && transfer->receive)) {
    return TimeEstimate{};
  }
  if (!(rates.link_bytes_per_us > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("machine ", machine.name, " has no link_gb_per_s, which ", op.name, " needs"));
  }
  if (reduce != nullptr) {
    return EstimateAllReduce(op, *reduce, machine, rates, curves);
  }
  const double latency = exchange != nullptr ? kAllToAllLatencyUs : kTransferLatencyUs;
  return Spread(latency + op.work.link_bytes / rates.link_bytes_per_us, 0.5, Origin::kAssumed);
}

}  // namespace lastflop
