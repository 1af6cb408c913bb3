#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/dequant/dequant.h"

namespace lastflop {

absl::Status ValidateDequant(const DequantShape& shape) {
  LASTFLOP_RETURN_IF_ERROR(CheckCpuWeightFormat(shape.storage));
  if (IsFp8(shape.storage)) {
    return absl::UnimplementedError(
        absl::StrCat("moe.dequant=separate with moe.weights=", ToWord(shape.storage.format),
                     ": the CPU backend dequantizes int4 apart; fp8 is decoded in registers"));
  }
  if (GroupSizeOf(shape.storage) == 0) {
    return absl::InvalidArgumentError(
        "moe.dequant=separate with moe.weights=bf16: there is nothing to dequantize");
  }
  if (shape.num_local_experts < 1 || shape.out_features < 1 || shape.in_features < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dequant: num_local_experts=", shape.num_local_experts, " out_features=",
        shape.out_features, " in_features=", shape.in_features, ": sizes must be positive"));
  }
  return absl::OkStatus();
}

void DequantReference(const DequantShape& /*shape*/, WeightRows weights, int64_t expert,
                      int64_t row, std::span<float> out) {
  weights(expert, row, out);
  for (float& weight : out) {
    weight = RoundToBf16(weight);
  }
}

}  // namespace lastflop
