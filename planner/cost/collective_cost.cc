#include "planner/cost/collective_cost.h"

#include <algorithm>
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

// A collective over NVLink with kernels that write into the others' memory.
struct PeerCurve {
  double latency_us = 0;
  double link_share = 1;  // Of the declared link.
};

// Two H200s, experiments/results/h200x2/collectives.json and all_to_all.json: within 6% from 2 KiB
// to 8 MiB.
constexpr PeerCurve kOneShotOfTwo{.latency_us = 2.1, .link_share = 0.76};
constexpr PeerCurve kTwoShotOfTwo{.latency_us = 3.5, .link_share = 0.8};
constexpr PeerCurve kAllToAllOfTwo{.latency_us = 2.6, .link_share = 0.7};
constexpr double kScatterOfTwo = 0.1;
// Of more ranks: assumed, from these.
constexpr PeerCurve kOneShot{.latency_us = 2.5};
constexpr PeerCurve kTwoShot{.latency_us = 4.0};
constexpr PeerCurve kAllToAll{.latency_us = 3.0};
constexpr double kNcclAllToAllLatencyUs = 12.0;  // 14 and 9 on two H200s.
constexpr double kTransferLatencyUs = 8.0;

TimeEstimate Spread(double us, double scatter, Origin origin) {
  return {.us = us,
          .low_us = us * std::exp(-kEighty * scatter),
          .high_us = us * std::exp(kEighty * scatter),
          .origin = origin};
}

// Of `bytes` that a rank sends. Over PCIe nobody measured one: no sooner done than NCCL's.
TimeEstimate EstimatePeer(double bytes, int64_t ranks, const PeerCurve& of_two,
                          const PeerCurve& assumed, double scatter, const Machine& machine,
                          const MachineRates& rates, const OpCurves& curves) {
  constexpr double kPcieScatter = 0.6;
  const bool is_pcie = machine.link == "pcie";
  const bool is_measured = rates.is_curves_machine && ranks == 2 && !is_pcie;
  const PeerCurve& curve = is_measured ? of_two : assumed;
  double latency_us = curve.latency_us;
  if (is_pcie) {
    const OpCurve& nccl = curves.of[static_cast<size_t>(OpFamily::kNcclAllReduce)];
    latency_us = std::max(latency_us, machine.collective_latency_us.value_or(
                                          nccl.latency_us * std::log2(static_cast<double>(ranks))));
    scatter = std::max(scatter, kPcieScatter);
  }
  const double us = latency_us + bytes / (curve.link_share * rates.link_bytes_per_us);
  return is_measured ? Spread(us, kScatterOfTwo, Origin::kInterpolated)
                     : Spread(us, scatter, Origin::kAssumed);
}

absl::StatusOr<TimeEstimate> EstimateAllReduce(const Op& op, const AllReduceShape& shape,
                                               const Machine& machine, const MachineRates& rates,
                                               const OpCurves& curves) {
  const double bytes = static_cast<double>(shape.elements) * PayloadBytes(shape.payload);
  const auto ranks = static_cast<double>(shape.ranks);
  if (shape.algorithm == AllReduceAlgorithm::kOneShot) {
    return EstimatePeer((ranks - 1) * bytes, shape.ranks, kOneShotOfTwo, kOneShot, 0.4, machine,
                        rates, curves);
  }
  if (shape.algorithm == AllReduceAlgorithm::kTwoShot) {
    return EstimatePeer(op.work.link_bytes, shape.ranks, kTwoShotOfTwo, kTwoShot, 0.4, machine,
                        rates, curves);
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
  if (exchange != nullptr && exchange->algorithm == AllToAllAlgorithm::kP2p) {
    return EstimatePeer(op.work.link_bytes, exchange->ranks, kAllToAllOfTwo, kAllToAll, 0.5,
                        machine, rates, curves);
  }
  const double latency = exchange != nullptr ? kNcclAllToAllLatencyUs : kTransferLatencyUs;
  return Spread(latency + op.work.link_bytes / rates.link_bytes_per_us, 0.5, Origin::kAssumed);
}

}  // namespace lastflop
