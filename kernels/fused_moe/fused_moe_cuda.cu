#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/words.h"
#include "gpu/cuda_status.h"
#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/fused_moe/fused_moe_launch.h"

namespace lastflop {
namespace {

constexpr int64_t kBarrierBytes = 256;

FusedMoeConfig ConfigOf(const FusedMoeCudaConfig& config) {
  FusedMoeConfig chosen;
  // Measured on one H200, Kimi-K2.5 as TP8: 2 stages were never slower than 3 or 4.
  chosen.stages = config.stages != 0 ? config.stages : 2;
  chosen.blocks_per_sm = config.blocks_per_sm != 0 ? config.blocks_per_sm : 2;
  return chosen;
}

FusedMoeArguments SizesOf(const FusedMoeShape& shape) {
  FusedMoeArguments a{};
  a.num_tokens = static_cast<int>(shape.num_tokens);
  a.top_k = static_cast<int>(shape.top_k);
  a.num_local_experts = static_cast<int>(shape.num_local_experts);
  a.hidden = static_cast<int>(shape.hidden_size);
  a.intermediate = static_cast<int>(shape.moe_intermediate_size);
  return a;
}

}  // namespace

absl::Status CheckFusedMoeCuda(const FusedMoeShape& shape, const FusedMoeCudaConfig& config) {
  if (shape.storage.format != WeightFormat::kInt4G32) {
    return absl::UnimplementedError(
        absl::StrCat("moe.kernel: fused on CUDA has int4_g32, not ", ToWord(shape.storage.format)));
  }
  if (shape.tile_order != TileOrder::kRowMajor) {
    return absl::UnimplementedError(
        "moe.tile_order: the fused kernel on CUDA reads every weight once; it has no column_major");
  }
  if (shape.num_tokens < 0 || shape.num_tokens > 65536 || shape.top_k < 1 ||
      shape.num_local_experts < 1 || shape.hidden_size < 1 || shape.moe_intermediate_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fused_moe: num_tokens=", shape.num_tokens, " top_k=", shape.top_k, " experts=",
        shape.num_local_experts, " [", shape.hidden_size, ", ", shape.moe_intermediate_size, "]"));
  }
  int device = 0;
  int major = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for the device");
  if (major != 9) {
    return absl::UnimplementedError(absl::StrCat(
        "moe.kernel: fused is built for compute capability 9.0, the device has ", major, ".x"));
  }
  return CheckFusedMoe(SizesOf(shape), ConfigOf(config));
}

int64_t FusedMoeCudaWorkspaceBytes(const FusedMoeShape& shape) {
  return kBarrierBytes + shape.num_tokens * shape.top_k * shape.moe_intermediate_size *
                             static_cast<int64_t>(sizeof(__nv_bfloat16));
}

absl::Status LaunchFusedMoeCuda(const FusedMoeShape& shape, const FusedMoeTensors& tensors,
                                const FusedMoeCudaConfig& config, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckFusedMoeCuda(shape, config));
  auto* workspace = static_cast<unsigned char*>(tensors.workspace);
  FusedMoeArguments a = SizesOf(shape);
  a.gate_up = static_cast<const unsigned char*>(tensors.gate_up);
  a.down = static_cast<const unsigned char*>(tensors.down);
  a.in = tensors.in;
  a.shared = shape.add_shared ? tensors.shared : nullptr;
  a.expert_ids = tensors.expert_ids;
  a.expert_weights = tensors.expert_weights;
  a.act = reinterpret_cast<__nv_bfloat16*>(workspace + kBarrierBytes);
  a.out = tensors.out;
  a.barrier = reinterpret_cast<unsigned int*>(workspace);
  a.first_expert = static_cast<int>(tensors.first_expert);
  return LaunchFusedMoe(a, ConfigOf(config), stream);
}

}  // namespace lastflop
