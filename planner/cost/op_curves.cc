#include "planner/cost/op_curves.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/cost/units.h"
#include "step/work.h"

namespace lastflop {
namespace {

constexpr double kCurveBandwidth = 4.8e6;  // Bytes/us of the H200, where the curves are from.
constexpr double kTileColumns = 128;       // Of the grouped products: narrower parts are padded.
constexpr double kHalfTileTokens = 8;      // Tiles of 8 tokens take as many instructions as of 16.
// H200: cuBLASLt's best product over the data sheet's peak.
constexpr double kMeasuredShareOfPeak = 0.77;
// Of a CPU's multiply-adds on registers. An assumption: packed weights, and operands from caches.
constexpr double kCpuProductShare = 0.6;
constexpr double kMostRows = 8;            // Times the curves' rows: beyond, tiles are full.
constexpr double kRestrictedChoice = 1.6;  // H200: opportunistic-experts of both campaigns.

// Fitted by tests/bench/fit_op_curves.cc to the ops of the four H200 campaigns, six points
// each. What none of their steps has is as fitted to an older build: kFusedMoe, kDequant.
OpCurves MakeH200Curves() {
  OpCurves curves;
  curves.device_name = "NVIDIA H200";
  curves.architecture = "sm_90";
  curves.gap_us_per_op = 0.632;
  curves.gap_us_per_layer = 8.56;
  curves.gap_us_per_nccl = 2.97;
  curves.step_us = 6.27;
  const auto set = [&curves](OpFamily family, const OpCurve& curve) {
    curves.of[static_cast<size_t>(family)] = curve;
    curves.of[static_cast<size_t>(family)].origin = Origin::kInterpolated;
  };
  set(OpFamily::kEmbedding, {1.48, 0.569, 0.58, 8.77, 1, false, 0, 0, 0.15});
  set(OpFamily::kRowNorm, {2.64, 0.5, 0.00174, 27, 3, true, 0, 0, 0.11});
  set(OpFamily::kPartNorm, {1.75, 0.458, 0.0111, 2.74, 2, false, 0, 0, 0.12});
  set(OpFamily::kGemm, {3.41, 0.794, 0.854, 5.19, 2, false, 0, 0, 0.15});
  set(OpFamily::kFp32Gemm, {5.24, 0.911, 0.858, 5.58, 2, false, 0, 0, 0.079});
  set(OpFamily::kHeadGemm, {3.06, 1, 0.482, 12.8, 2, false, 0, 0, 0.12});
  set(OpFamily::kRope, {1.79, 1, 0.00234, 33.1, 2, false, 0, 0, 0.088});
  set(OpFamily::kMlaAttention, {9.4, 0.735, 0.196, 1.44, 3, true, 0.28, 0.6, 0.05});
  set(OpFamily::kGqaAttention, {6.92, 0.706, 1, 50, 3, true, 0.23, 0.47, 0.074});
  set(OpFamily::kTopK, {2.51, 1, 0.0168, 0.92, 2, false, 0.3, 0, 0.18});
  set(OpFamily::kPermute, {3.05, 1, 1, 0.00465, 1, false, 0, 0, 0.094});
  set(OpFamily::kExpertGemmBf16, {2.23, 0.833, 0.0662, 3.74, 3, false, 0, 0, 0.15});
  set(OpFamily::kExpertGemmInt4, {2.63, 1, 0.19, 4.21, 2, false, 0, 0, 0.098});
  set(OpFamily::kFusedMoe, {7, 0.385, 0.1, 2, 1, false, 0, 0, 0.1});
  set(OpFamily::kDequant, {18, 0.8, 1, 4, 1, false, 0, 0, 0.15});
  set(OpFamily::kSwiglu, {1.37, 0.5, 0.47, 3.83, 1, false, 0, 0, 0.11});
  set(OpFamily::kCombine, {2.6, 0.5, 0.00378, 52.9, 1, false, 0, 0, 0.14});
  set(OpFamily::kNcclAllReduce, {6.7, 0.334, 1, 2.9, 1, false, 0, 0, 0.14});
  set(OpFamily::kSampling, {23.3, 0.5, 1, 3.61, 1, false, 0, 0, 0.35});
  set(OpFamily::kTransfer, {8, 0.5, 1, 3, 1, false, 0, 0, 0.5});
  curves.of[static_cast<size_t>(OpFamily::kTransfer)].origin = Origin::kAssumed;
  return curves;
}

// The factor on a family's latency: attention splits its cache over fewer blocks when there are
// many rows of queries for a cached head, the choice of experts scans all of them, and twice where
// a batch's tokens restrict each other.
double LatencyFactor(const OpShape& shape, const OpCurve& curve) {
  if (const auto* attention = std::get_if<AttentionShape>(&shape)) {
    // In units of what the curves have: 8 heads on MLA's one cached head, 4 on one of gqa.
    const double heads = attention->kind == AttentionKind::kMla
                             ? static_cast<double>(attention->num_heads) / 8
                             : static_cast<double>(attention->num_heads) /
                                   static_cast<double>(attention->num_kv_heads) / 4;
    // Several new tokens of a sequence (speculation) are as many more rows; a prompt fills tiles.
    const double rows =
        std::min(heads * static_cast<double>(attention->query_tokens), std::max(heads, kMostRows));
    const double sequences = std::min(static_cast<double>(attention->num_sequences), 4.0);
    return std::pow(rows, curve.latency_exponent) * std::pow(sequences, curve.batch_exponent);
  }
  if (const auto* router = std::get_if<RouterShape>(&shape)) {
    const bool restricts =
        router->opportunistic_keep > 0 && router->opportunistic_keep < router->top_k;
    return std::pow(static_cast<double>(router->num_experts) / 128, curve.latency_exponent) *
           (restricts ? kRestrictedChoice : 1);
  }
  return 1;
}

// Columns that only fill a tile count as well, and with weights that are unpacked rows that do: an
// expert's last tile is half empty on average and takes the instructions of a full one. Products of
// bf16 weights wait for memory meanwhile.
double PaddedFlop(const Op& op) {
  const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape);
  if (gemm == nullptr || gemm->out_features <= 0 || gemm->in_features <= 0) {
    return op.work.flop;
  }
  const auto columns = static_cast<double>(gemm->out_features);
  const auto depth = static_cast<double>(gemm->in_features);
  double flop = op.work.flop;
  if (BitsPerWeight(gemm->storage) < 8) {
    const double experts =
        op.work.weight_bytes / StoredBytes(gemm->storage, gemm->out_features, gemm->in_features);
    flop += 2 * kHalfTileTokens * experts * columns * depth;
  }
  return flop * std::ceil(columns / kTileColumns) * kTileColumns / columns;
}

double FlopRate(const Op& op, const MachineRates& rates) {
  if (const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape)) {
    if (gemm->activations == ActivationFormat::kFp8 && rates.fp8_flop_per_us > 0) {
      return rates.fp8_flop_per_us;
    }
    if (gemm->activations == ActivationFormat::kNvfp4 && rates.fp4_flop_per_us > 0) {
      return rates.fp4_flop_per_us;
    }
  }
  return rates.bf16_flop_per_us;
}

// Whether the committed runs hold the op's own format, and kernel.
bool IsMeasuredFormat(const Op& op) {
  const auto is_measured = [](const WeightStorage& storage) {
    return storage.format == WeightFormat::kBf16 || storage.format == WeightFormat::kInt4G32;
  };
  if (const auto* expert = std::get_if<ExpertGemmShape>(&op.shape)) {
    return is_measured(expert->storage) && expert->activations == ActivationFormat::kBf16 &&
           expert->padded_rows == 0;
  }
  if (const auto* gemm = std::get_if<GemmShape>(&op.shape)) {
    return gemm->storage.format == WeightFormat::kBf16;
  }
  if (const auto* fused = std::get_if<FusedMoeShape>(&op.shape)) {
    return fused->storage.format == WeightFormat::kInt4G32;
  }
  return true;
}

// (a^power + b^power + c^power)^(1/power). The fitted powers are 1, 2 and 3: roots are several
// times faster than general powers.
double PowerSum(double a, double b, double c, double power) {
  if (power == 1) {
    return a + b + c;
  }
  if (power == 2) {
    return std::sqrt(a * a + b * b + c * c);
  }
  if (power == 3) {
    return std::cbrt(a * a * a + b * b * b + c * c * c);
  }
  return std::pow(std::pow(a, power) + std::pow(b, power) + std::pow(c, power), 1 / power);
}

OpFamily ExpertFamily(const WeightStorage& storage) {
  return BitsPerWeight(storage) < 8 ? OpFamily::kExpertGemmInt4 : OpFamily::kExpertGemmBf16;
}

}  // namespace

const OpCurves& H200OpCurves() {
  static const OpCurves curves = MakeH200Curves();
  return curves;
}

absl::StatusOr<MachineRates> RatesOf(const Machine& machine, const OpCurves& curves) {
  MachineRates rates;
  if (machine.peak_bandwidth_gb_per_s.has_value()) {
    rates.bytes_per_us = *machine.peak_bandwidth_gb_per_s * kBytesPerMicroPerGbPerS;
  } else if (!machine.cold_read.empty()) {
    rates.bytes_per_us = machine.cold_read.back().bytes / machine.cold_read.back().us;
  }
  if (!(rates.bytes_per_us > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("machine ", machine.name,
                     " has neither peak_bandwidth_gb_per_s nor cold_read: without a bandwidth "
                     "nothing can be predicted for it"));
  }
  const auto flop = [](const std::optional<double>& tflop) {
    return tflop.value_or(0) * kFlopPerMicroPerTflopPerS;
  };
  rates.bf16_flop_per_us = flop(machine.peak_bf16_tflop_per_s);
  if (!machine.peak_bf16_tflop_per_s.has_value() && machine.measured_bf16_tflop_per_s.has_value()) {
    const double measured = flop(machine.measured_bf16_tflop_per_s);
    const bool is_cpu = machine.backend == "cpu";
    rates.bf16_flop_per_us = is_cpu ? measured : measured / kMeasuredShareOfPeak;
    rates.product_share = is_cpu ? kCpuProductShare : 0;
  }
  rates.fp8_flop_per_us = flop(machine.peak_fp8_tflop_per_s);
  rates.fp4_flop_per_us = flop(machine.peak_fp4_tflop_per_s);
  rates.link_bytes_per_us =
      machine.link_gb_per_s.value_or(machine.measured_link_gb_per_s.value_or(0)) *
      kBytesPerMicroPerGbPerS;
  rates.is_curves_machine = machine.device_name == curves.device_name;
  rates.is_curves_architecture = absl::StartsWith(machine.architecture, curves.architecture);
  return rates;
}

OpFamily FamilyOf(const Op& op) {
  struct Families {
    OpFamily operator()(const EmbeddingShape&) const { return OpFamily::kEmbedding; }
    OpFamily operator()(const NormShape& s) const {
      return s.parts == 1 && s.stride == s.size ? OpFamily::kRowNorm : OpFamily::kPartNorm;
    }
    OpFamily operator()(const GemmShape& s) const {
      return s.fp32_out ? OpFamily::kFp32Gemm : OpFamily::kGemm;
    }
    OpFamily operator()(const HeadGemmShape&) const { return OpFamily::kHeadGemm; }
    OpFamily operator()(const RopeShape&) const { return OpFamily::kRope; }
    OpFamily operator()(const AttentionShape& s) const {
      return s.kind == AttentionKind::kMla ? OpFamily::kMlaAttention : OpFamily::kGqaAttention;
    }
    OpFamily operator()(const RouterShape&) const { return OpFamily::kTopK; }
    OpFamily operator()(const PermuteShape&) const { return OpFamily::kPermute; }
    OpFamily operator()(const PadShape&) const { return OpFamily::kCombine; }  // Rows, moved.
    OpFamily operator()(const ExpertGemmShape& s) const {
      // Padded ones are cuBLASLt's products, as dense ones are.
      return s.padded_rows > 0 ? OpFamily::kGemm : ExpertFamily(s.storage);
    }
    OpFamily operator()(const ActivationShape&) const { return OpFamily::kSwiglu; }
    OpFamily operator()(const CombineShape&) const { return OpFamily::kCombine; }
    OpFamily operator()(const FusedMoeShape&) const { return OpFamily::kFusedMoe; }
    OpFamily operator()(const DequantShape&) const { return OpFamily::kDequant; }
    OpFamily operator()(const AllReduceShape&) const { return OpFamily::kNcclAllReduce; }
    OpFamily operator()(const AllToAllShape&) const { return OpFamily::kTransfer; }
    OpFamily operator()(const StageTransferShape&) const { return OpFamily::kTransfer; }
    OpFamily operator()(const SampleShape&) const { return OpFamily::kSampling; }
  };
  return std::visit(Families{}, op.shape);
}

TimeEstimate EstimateOp(const Op& op, double floor_us, const MachineRates& rates,
                        const OpCurves& curves) {
  const OpFamily family = FamilyOf(op);
  if (op.category == OpCategory::kCollective) {
    return {};
  }
  const OpCurve& curve = curves.of[static_cast<size_t>(family)];
  const double latency = curve.latency_us * LatencyFactor(op.shape, curve);
  const double read =
      (op.work.weight_bytes + op.work.cache_bytes) / (curve.byte_share * rates.bytes_per_us);
  const double flop_rate = FlopRate(op, rates);
  const double share = rates.product_share > 0 ? rates.product_share : curve.flop_share;
  const double products = flop_rate > 0 ? PaddedFlop(op) / (share * flop_rate) : 0;
  const double hidden = curve.latency_hides ? latency : 0;
  double us = PowerSum(hidden, read, products, curve.power);
  us += (curve.latency_hides ? 0 : latency) +
        op.work.activation_bytes / (curve.activation_tb_per_s * kBytesPerMicroPerTbPerS *
                                    rates.bytes_per_us / kCurveBandwidth);
  TimeEstimate estimate{.us = std::max(us, floor_us), .origin = curve.origin};
  double scatter = curve.scatter;
  if (!rates.is_curves_machine || !IsMeasuredFormat(op)) {
    // Borrowed: another machine's curve, scaled by bandwidth and peak.
    scatter = std::hypot(scatter, rates.is_curves_architecture ? 0.15 : 0.3);
    estimate.origin = rates.is_curves_machine || rates.is_curves_architecture ? Origin::kModelled
                                                                              : Origin::kAssumed;
  }
  const double spread = std::exp(kEighty * scatter);
  estimate.low_us = std::max(floor_us, estimate.us / spread);
  estimate.high_us = estimate.us * spread;
  return estimate;
}

}  // namespace lastflop
