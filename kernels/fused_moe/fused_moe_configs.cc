#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/fused_moe/fused_moe.h"

namespace lastflop {

absl::Status ValidateFusedMoe(const FusedMoeShape& shape) {
  LASTFLOP_RETURN_IF_ERROR(CheckCpuWeightFormat(shape.storage));
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.hidden_size < 1 || shape.moe_intermediate_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fused_moe: num_tokens=", shape.num_tokens, " top_k=", shape.top_k,
        " num_local_experts=", shape.num_local_experts, " hidden_size=", shape.hidden_size,
        " moe_intermediate_size=", shape.moe_intermediate_size, ": sizes must be positive"));
  }
  return absl::OkStatus();
}

}  // namespace lastflop
