#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/stream.h"
#include "step/layout.h"
#include "step/shapes.h"
#include "worker/cuda_step.h"

// moe.kernel: plugin:NAME on the CUDA backend.
namespace lastflop {

// Device memory that a plugin op takes.
struct CudaPluginMemory {
  int64_t workspace_bytes = 0;  // Of run(), with the guard behind it.
  double weight_bytes = 0;      // Kept for a layer: as they are stored, or in its own layout.
  double passing_bytes = 0;     // While a layer's weights are made, beside those.
};

// Errors as PluginHost::Load() and PluginMoe::QueryNeeds(). Unimplemented: a plugin in Python, or
// one whose run() cannot be captured where the plan wants a graph.
absl::StatusOr<CudaPluginMemory> MemoryOfCudaPlugin(const CudaStepInputs& inputs,
                                                    const Layout& layout, const Op& op);

// Makes a plugin op ready: the plugin, which the layers of a step share, and its weights. Waits for
// the device where the plugin lays them out. Errors as MemoryOfCudaPlugin() and
// PluginMoe::Create(); what the device says of prepare().
absl::Status LoadCudaPlugin(const CudaStepInputs& inputs, CudaStep& step, CudaBufferStore& store,
                            cudaStream_t stream, CudaOp& op);

// Enqueues a plugin op, also while `stream` is captured. Internal: what the plugin says, an error
// that CUDA keeps from its launches, or that the capture is broken. DataLoss: the device is.
absl::Status RunCudaPlugin(CudaStep& step, CudaOp& op, cudaStream_t stream);

// Waits for what RunCudaPlugin() enqueued, alone since the last wait: errors are the plugin's, and
// the worker knows that this process is in it.
absl::Status WaitForCudaPlugin(const CudaStep& step, const Stream& stream);

// `status`, which is what waiting for a whole step gave: of one with a plugin an error names it.
absl::Status NamingCudaPlugin(const CudaStep& step, const absl::Status& status);

// Runs a plugin op in a check and waits for it. What the plugin wrote behind its output, which is
// poisoned whole, or behind its workspace, in words; nullopt when it did not. Errors as
// RunCudaOp(), and WaitForCudaPlugin().
absl::StatusOr<std::optional<std::string>> RunGuardedCudaPlugin(CudaStep& step, CudaOp& op,
                                                                CudaContext& context);

}  // namespace lastflop
