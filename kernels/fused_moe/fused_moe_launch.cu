#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/cuda_status.h"
#include "kernels/fused_moe/fused_moe_launch.h"

namespace lastflop {
namespace {

template <int kStages>
absl::Status Launch(const FusedMoeArguments& arguments, const FusedMoeConfig& config,
                    cudaStream_t stream) {
  auto* kernel = fused_moe::FusedMoeKernel<kStages>;
  const int shared_bytes = fused_moe::MakeSharedLayout(arguments.num_tokens, arguments.top_k,
                                                       arguments.num_local_experts, kStages)
                               .bytes;
  int device = 0;
  int num_sms = 0;
  int blocks = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, fused_moe::kThreads,
                                                          shared_bytes);
  }
  if (error != cudaSuccess) {
    return CudaStatus(error, "preparing fused_moe");
  }
  if (blocks == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fused_moe: stages=", kStages, " needs ", shared_bytes,
                     " B of shared memory a block, more than the device has"));
  }
  const int grid = num_sms * std::min(blocks, config.blocks_per_sm);
  FusedMoeArguments copy = arguments;
  void* parameters[] = {&copy};
  error = cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(grid),
                                      dim3(fused_moe::kThreads), parameters,
                                      static_cast<size_t>(shared_bytes), stream);
  return CudaStatus(error, "launching fused_moe");
}

}  // namespace

absl::Status CheckFusedMoe(const FusedMoeArguments& arguments, const FusedMoeConfig& config) {
  if (arguments.hidden % fused_moe::kPanelK != 0 ||
      arguments.intermediate % fused_moe::kPanelK != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fused_moe: hidden_size=", arguments.hidden, " and moe_intermediate_size=",
        arguments.intermediate, " of a rank must be multiples of ", fused_moe::kPanelK));
  }
  const int bytes = fused_moe::MakeSharedLayout(arguments.num_tokens, arguments.top_k,
                                                arguments.num_local_experts, config.stages)
                        .bytes;
  int device = 0;
  int limit = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fused_moe: num_tokens=", arguments.num_tokens, " needs ", bytes,
                     " B of shared memory, the device has ", limit));
  }
  return absl::OkStatus();
}

absl::Status LaunchFusedMoe(const FusedMoeArguments& arguments, const FusedMoeConfig& config,
                            cudaStream_t stream) {
  if (const absl::Status checked = CheckFusedMoe(arguments, config); !checked.ok()) {
    return checked;
  }
  if (arguments.num_tokens == 0) {
    return absl::OkStatus();
  }
  switch (config.stages) {
    case 2:
      return Launch<2>(arguments, config, stream);
    case 3:
      return Launch<3>(arguments, config, stream);
    case 4:
      return Launch<4>(arguments, config, stream);
    case 6:
      return Launch<6>(arguments, config, stream);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("fused_moe has no build for stages=", config.stages));
  }
}

}  // namespace lastflop
