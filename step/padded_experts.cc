#include "step/padded_experts.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "step/layout.h"
#include "step/work.h"

namespace lastflop {

int64_t PaddedRows(int64_t num_tokens) { return num_tokens; }

absl::Status CheckPaddedExperts(const Model& model, const Plan& plan) {
  if (plan.moe.kernel != MoeKernel::kCublaslt) {
    return absl::OkStatus();
  }
  const WeightStorage storage = ExpertStorage(model, plan);
  if (plan.moe.dequant == Dequant::kSeparate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "moe.kernel=cublaslt with moe.dequant=separate: the copies are panels of the touched "
        "experts, and cublaslt reads rows of all; moe.weights=bf16 has them, in ",
        absl::StrFormat("%.3g", BitsPerWeight(WeightStorage{}) / BitsPerWeight(storage)),
        " times the bytes"));
  }
  if (storage.format != WeightFormat::kBf16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "moe.kernel=cublaslt reads bf16 experts; ", ToWord(storage.format),
        " needs moe.weights=bf16, ",
        absl::StrFormat("%.3g", BitsPerWeight(WeightStorage{}) / BitsPerWeight(storage)),
        " times the bytes"));
  }
  return absl::OkStatus();
}

std::string PaddingNote(const Model& model, const Step& step) {
  for (const Op& op : step.ops) {
    const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape);
    if (gemm == nullptr || gemm->padded_rows == 0) {
      continue;
    }
    const double experts = static_cast<double>(gemm->num_local_experts);
    const double even_pairs = static_cast<double>(gemm->num_tokens * gemm->top_k) * experts /
                              static_cast<double>(model.num_experts);
    const double rows = experts * static_cast<double>(gemm->padded_rows);
    return absl::StrFormat(
        "padded to %d rows an expert, as routing is on the device: %.3g times the flop of its "
        "pairs at even routing; all %d local experts' weights are read, whether routed to or not",
        gemm->padded_rows, rows / even_pairs, gemm->num_local_experts);
  }
  return "";
}

}  // namespace lastflop
