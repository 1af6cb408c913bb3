#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model.h"
#include "common/plan.h"
#include "step/op.h"
#include "step/shapes.h"
#include "worker/cuda_step.h"

// How much device memory a step takes, and what that of it is called that arms share.
namespace lastflop {

// Device memory that a step takes.
struct CudaStepMemory {
  // Of the store, by what it is: what CudaStep shares with other arms (weights, caches,
  // activations, workspaces).
  std::map<std::string, double> shared;
  double own_bytes = 0;  // Beside the store: what is a draw's, and the fused kernel's workspace.
  double workspace_bytes = 0;  // In `shared`: what one kernel at a time works in.
  double panel_bytes = 0;      // In `shared`: what panels take beyond their weights.
  // In `shared`: what a plugin's weights take beyond WeightMemoryBytes().
  double plugin_bytes = 0;
};

// Of the step that LoadCudaStep makes on a device with so many SMs. Not counted: tables of rope and
// of popularity, pairs of fp8 dense layers, the room of NCCL's combine. Of a plugin op errors are
// those of MemoryOfCudaPlugin().
absl::StatusOr<CudaStepMemory> MemoryOf(const CudaStepInputs& inputs, int num_sms);

// Names in the store: of scratch, and of an activation's scratch.
std::string ScratchKey(absl::string_view name, int64_t bytes);
std::string ScratchName(Tensor tensor);

// Of these the step has no tensor of its own: routes are a draw's, pairs lie in scratch, copies of
// experts in the store.
bool IsKeptElsewhere(Tensor tensor);

// Behind the values of an activation: what a plugin may write has a guard, under any plan, so that
// arms share it.
int64_t ScratchGuardBytes(Tensor tensor);

// Room that the kernel of an op works in; of NCCL's combine it is not here (SplitOf has it).
int64_t WorkspaceBytesOf(const OpShape& shape, int64_t num_expert_tokens, int num_sms);

// Of the pair lists; `tile_tokens` returns the tile that they are laid out for.
int64_t PairsBytesOf(const PermuteShape& shape, const Model& model, const Plan& plan,
                     int& tile_tokens);

}  // namespace lastflop
