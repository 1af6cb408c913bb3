#pragma once

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "common/model.h"
#include "planner/ranking.h"
#include "step/op.h"

// How long one op of a step takes: a physical model with few parameters a family of kernels, fitted
// to measured breakdowns.
namespace lastflop {

// Ops whose times follow one curve.
enum class OpFamily {
  kEmbedding,
  kRowNorm,
  kPartNorm,
  kGemm,
  kFp32Gemm,  // Router scores and logits.
  kHeadGemm,
  kRope,
  kMlaAttention,
  kGqaAttention,
  kTopK,
  kPermute,
  kExpertGemmBf16,
  kExpertGemmInt4,
  kFusedMoe,
  kDequant,
  kSwiglu,
  kCombine,
  kNcclAllReduce,
  kSampling,
  kTransfer  // All-to-all and the hand-over between stages.
};
inline constexpr size_t kNumOpFamilies = 20;

// A time in us with the interval that holds about four of five measurements of its kind.
struct TimeEstimate {
  double us = 0;
  double low_us = 0;
  double high_us = 0;
  Origin origin = Origin::kModelled;
};

// t = latency (+) bytes / (byte_share * bandwidth) (+) flop / (flop_share * peak)
//     + activation bytes / activation rate
//
// where (+) is (a^power + b^power)^(1/power): 1 adds, larger values let the longer part hide the
// shorter. The latency takes part in it when `latency_hides`, else it is added.
struct OpCurve {
  double latency_us = 0;
  double byte_share = 1;  // Of the machine's peak; of the link for collectives.
  double flop_share = 1;
  double activation_tb_per_s = 0;  // On a machine of kCurveBandwidth; scaled by bandwidth.
  double power = 1;
  bool latency_hides = false;
  double latency_exponent = 0;  // Of heads / 8 (attention) or experts / 128 (top_k).
  double batch_exponent = 0;    // Of min(sequences, 4), attention only.
  double scatter = 0.3;         // Relative standard deviation of measurements around the curve.
  Origin origin = Origin::kAssumed;
};

// Curves of all families, measured on one machine.
struct OpCurves {
  std::array<OpCurve, kNumOpFamilies> of{};
  std::string device_name;   // Where they were measured.
  std::string architecture;  // "sm_90"
  // A step's kernels without a CUDA graph, and with one a layer: measured per op and per layer.
  double gap_us_per_op = 0;
  double gap_us_per_layer = 0;
  // After a NCCL kernel: the next one starts when it has ended, not while it ends.
  double gap_us_per_nccl = 0;
  double step_us = 0;  // Once a step: what no op claims.
};

// Curves fitted to the committed campaigns on one and two H200s (experiments/results/h200*,
// docs/accuracy.md says how well).
const OpCurves& H200OpCurves();

// The rates of a machine that curves are applied to, in bytes/us and flop/us.
struct MachineRates {
  double bytes_per_us = 0;
  double bf16_flop_per_us = 0;  // 0: unknown, products cost no time beyond their bytes.
  // Of bf16_flop_per_us, what products reach, instead of the curves' share of a data sheet's peak:
  // of a CPU, whose rate is measured. 0: the curves'.
  double product_share = 0;
  double fp8_flop_per_us = 0;
  double fp4_flop_per_us = 0;
  double link_bytes_per_us = 0;  // 0: unknown.
  bool is_curves_machine = false;
  bool is_curves_architecture = false;
};

// InvalidArgument: a machine without peak_bandwidth_gb_per_s and cold_read.
absl::StatusOr<MachineRates> RatesOf(const Machine& machine, const OpCurves& curves);

OpFamily FamilyOf(const Op& op);

// The time of `op`, at least its floor on the machine (step/floors.h). Collectives of several ranks
// are not priced here: 0.
TimeEstimate EstimateOp(const Op& op, double floor_us, const MachineRates& rates,
                        const OpCurves& curves);

}  // namespace lastflop
