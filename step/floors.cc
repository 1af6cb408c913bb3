#include "step/floors.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "common/units.h"

namespace lastflop {
namespace {

constexpr double kFlopPerMicroPerTflopPerS = 1e6;  // 1 TFLOP/s = 1e12/s = 1e6/us.

// The peak that applies to the op's products.
std::optional<double> PeakTflopPerS(const Op& op, const Machine& machine) {
  const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape);
  if (gemm != nullptr && gemm->activations == ActivationFormat::kFp8) {
    return machine.peak_fp8_tflop_per_s;
  }
  if (gemm != nullptr && gemm->activations == ActivationFormat::kNvfp4) {
    return machine.peak_fp4_tflop_per_s;
  }
  return machine.peak_bf16_tflop_per_s;
}

double ColdBytes(const Op& op, const Machine& machine) {
  const double cold = op.work.weight_bytes + op.work.cache_bytes;
  const bool activations_overflow =
      machine.l2_bytes > 0 && op.work.activation_bytes > static_cast<double>(machine.l2_bytes);
  return activations_overflow ? cold + op.work.activation_bytes : cold;
}

// The measured rate where it is known: of a CPU, whose cores multiply all formats in fp32, and of a
// GPU's bf16 products.
std::optional<double> ReachableTflopPerS(const Op& op, const Machine& machine) {
  const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape);
  const bool is_bf16 = gemm == nullptr || gemm->activations == ActivationFormat::kBf16;
  return machine.measured_bf16_tflop_per_s.has_value() && (is_bf16 || machine.backend == "cpu")
             ? machine.measured_bf16_tflop_per_s
             : PeakTflopPerS(op, machine);
}

double FlopAndLinkMicros(const Op& op, const std::optional<double>& peak, const Machine& machine) {
  double micros = 0;
  if (peak.has_value() && *peak > 0) {
    micros = op.work.flop / (*peak * kFlopPerMicroPerTflopPerS);
  }
  if (machine.link_gb_per_s.has_value() && *machine.link_gb_per_s > 0) {
    micros =
        std::max(micros, op.work.link_bytes / (*machine.link_gb_per_s * kBytesPerMicroPerGbPerS));
  }
  return micros;
}

}  // namespace

double FloorMicros(const Op& op, const Machine& machine) {
  const double read = ColdReadMicros(machine, ColdBytes(op, machine)).value_or(0.0);
  return std::max(read, FlopAndLinkMicros(op, ReachableTflopPerS(op, machine), machine));
}

double DeclaredFloorMicros(const Op& op, const Machine& machine) {
  double read = 0;
  if (machine.peak_bandwidth_gb_per_s.has_value() && *machine.peak_bandwidth_gb_per_s > 0) {
    // Weights alone: a short KV cache may stay in the last-level cache between steps.
    read = op.work.weight_bytes / (*machine.peak_bandwidth_gb_per_s * kBytesPerMicroPerGbPerS);
  }
  return std::max(read, FlopAndLinkMicros(op, PeakTflopPerS(op, machine), machine));
}

}  // namespace lastflop
