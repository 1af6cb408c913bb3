#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/grouped_gemm/grouped_gemm.h"

namespace lastflop {

absl::Status ValidateGroupedGemm(const ExpertGemmShape& shape) {
  LASTFLOP_RETURN_IF_ERROR(CheckCpuWeightFormat(shape.storage));
  if (shape.activations != ActivationFormat::kBf16) {
    return absl::UnimplementedError(absl::StrCat("moe.activations=", ToWord(shape.activations),
                                                 ": the CPU backend has bf16 activations"));
  }
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.out_features < 1 || shape.in_features < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grouped_gemm: num_tokens=", shape.num_tokens, " top_k=", shape.top_k,
        " num_local_experts=", shape.num_local_experts, " out_features=", shape.out_features,
        " in_features=", shape.in_features, ": sizes must be positive"));
  }
  if (shape.swiglu && shape.out_features % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("grouped_gemm: gate and up of ", shape.out_features, " features"));
  }
  if (shape.group_m < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe.group_m=", shape.group_m, ": must be 0 or more"));
  }
  if (shape.group_m > 0 && shape.tile_order == TileOrder::kColumnMajor) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe.group_m=", shape.group_m,
                     " with moe.tile_order=column_major: that order already takes all m-tiles of "
                     "a weight tile together; group_m must be 0"));
  }
  return absl::OkStatus();
}

}  // namespace lastflop
