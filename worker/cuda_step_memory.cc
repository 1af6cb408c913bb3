#include "worker/cuda_step_memory.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/panel.h"
#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/quantize_rows/quantize_rows_cuda.h"
#include "kernels/router/router_cuda.h"
#include "kernels/sample/sample_cuda.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "step/tensors.h"
#include "worker/cpu_step.h"
#include "worker/cuda_plugin.h"
#include "worker/draw_memory.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

// The weights of a plugin op; `of_op` is that of all of its layers, asked for once.
absl::Status AddPlugin(const CudaStepInputs& inputs, const Layout& layout, const Op& op,
                       std::optional<CudaPluginMemory>& of_op, CudaStepMemory& memory) {
  if (!of_op.has_value()) {
    LASTFLOP_ASSIGN_OR_RETURN(of_op, MemoryOfCudaPlugin(inputs, layout, op));
    memory.shared[absl::StrCat("weights that plugin:", inputs.plan.moe.plugin, " lays out")] =
        of_op->passing_bytes;
    memory.plugin_bytes += of_op->passing_bytes;
  }
  memory.shared[absl::StrCat("weights of plugin:", inputs.plan.moe.plugin, " layer ", op.layer,
                             " slices ", layout.expert_groups, "/", layout.expert_slices, " ",
                             ToWord(ExpertStorage(inputs.model, inputs.plan).format))] =
      of_op->weight_bytes;
  memory.plugin_bytes += std::max(0.0, of_op->weight_bytes - WeightMemoryBytes(op));
  return absl::OkStatus();
}

// What panels of the op's weights take beyond them: of fp8 a scale for each block of 16 x 128,
// where a checkpoint has one for 128 x 128, which BitsPerWeight leaves out.
double PanelExcess(const Op& op) {
  return std::visit(
      [&op](const auto& shape) -> double {
        if constexpr (requires { shape.storage; }) {
          if (shape.storage.format == WeightFormat::kFp8Block) {
            constexpr double kWeights = kRowBlock * PanelBlockK(WeightFormat::kFp8Block);
            return WeightMemoryBytes(op) * (8 * PanelBlockBytes(WeightFormat::kFp8Block) /
                                                kWeights / BitsPerWeight(shape.storage) -
                                            1);
          }
        }
        return 0;
      },
      op.shape);
}

// Whether its weights are rows for cuBLASLt and no panels.
bool IsOfPaddedExperts(const Op& op) {
  const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape);
  return gemm != nullptr && gemm->padded_rows > 0;
}

}  // namespace

std::string ScratchKey(absl::string_view name, int64_t bytes) {
  return absl::StrCat("scratch ", name, " bytes ", bytes);
}

std::string ScratchName(Tensor tensor) {
  return absl::StrCat("activation ", static_cast<int>(tensor));
}

bool IsKeptElsewhere(Tensor tensor) {
  return tensor == Tensor::kRouting || tensor == Tensor::kPairs ||
         tensor == Tensor::kDequantGateUp || tensor == Tensor::kDequantDown;
}

int64_t ScratchGuardBytes(Tensor tensor) {
  return tensor == Tensor::kHidden || tensor == Tensor::kExpertSum
             ? static_cast<int64_t>(kPluginGuardBytes)
             : 0;
}

int64_t WorkspaceBytesOf(const OpShape& shape, int64_t num_expert_tokens, int num_sms) {
  if (const auto* attention = std::get_if<AttentionShape>(&shape)) {
    return AttentionCudaWorkspaceBytes(*attention, num_sms);
  }
  if (const auto* router = std::get_if<RouterShape>(&shape)) {
    RouterShape of_all = *router;
    of_all.num_tokens = num_expert_tokens;  // A draw chooses for all of them.
    return RouterCudaWorkspaceBytes(of_all);
  }
  if (const auto* expert = std::get_if<ExpertGemmShape>(&shape)) {
    return expert->activations == ActivationFormat::kFp8
               ? RowsIn(*expert) * QuantizedRowBytes(expert->in_features)
               : 0;
  }
  const auto* sample = std::get_if<SampleShape>(&shape);
  return sample != nullptr ? SampleCudaWorkspaceBytes(*sample) : 0;
}

int64_t PairsBytesOf(const PermuteShape& shape, const Model& model, const Plan& plan,
                     int& tile_tokens) {
  // Separately dequantized experts are read as bf16.
  const WeightStorage read =
      plan.moe.dequant == Dequant::kSeparate ? WeightStorage{} : ExpertStorage(model, plan);
  tile_tokens = PairTileTokens(shape, read);
  return PairsBytes(shape, tile_tokens);
}

absl::StatusOr<CudaStepMemory> MemoryOf(const CudaStepInputs& inputs, int num_sms) {
  CudaStepMemory memory;
  std::map<std::string, double>& buffers = memory.shared;
  if (inputs.rank >= inputs.plan.num_ranks()) {
    return memory;
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      const Step step,
      MakeStep(
          inputs.model, inputs.plan, inputs.point, inputs.rank,
          {.layers_kept = inputs.layers_kept, .load = {}, .experts_only = inputs.experts_only}));
  const Layout layout = MakeLayout(inputs.model, inputs.plan, inputs.rank);
  const int64_t expert_tokens = NumExpertTokens(inputs.plan, inputs.point, layout, step);
  int64_t workspace = 0;
  int64_t fused_workspace = 0;
  std::optional<CudaPluginMemory> of_plugin;
  // Every weight and cache once, by what it is: the sizes are those of step/tensors.h, which the
  // fit check uses.
  for (const Op& op : step.ops) {
    workspace = std::max(workspace, WorkspaceBytesOf(op.shape, expert_tokens, num_sms));
    if (IsPluginOp(op)) {
      LASTFLOP_RETURN_IF_ERROR(AddPlugin(inputs, layout, op, of_plugin, memory));
      workspace = std::max(workspace, of_plugin->workspace_bytes);
      continue;
    }
    if (const auto* fused = std::get_if<FusedMoeShape>(&op.shape)) {
      fused_workspace = std::max(fused_workspace, FusedMoeCudaWorkspaceBytes(*fused));
    }
    if (const auto* permute = std::get_if<PermuteShape>(&op.shape)) {
      int tile_tokens = 0;
      const int64_t bytes = PairsBytesOf(*permute, inputs.model, inputs.plan, tile_tokens);
      buffers[ScratchKey("pairs", bytes)] = static_cast<double>(bytes);
    }
    const double weights = WeightMemoryBytes(op);
    if (weights > 0) {
      const bool is_expert = op.weight == Weight::kExpertGateUp || op.weight == Weight::kExpertDown;
      const std::string slices =
          is_expert ? absl::StrCat(layout.expert_groups, "/", layout.expert_slices, " ",
                                   ToWord(ExpertStorage(inputs.model, inputs.plan).format),
                                   IsOfPaddedExperts(op) ? " rows" : "")
                    : absl::StrCat(layout.tensor);
      const double excess = PanelExcess(op);
      const bool is_new =
          buffers
              .insert_or_assign(absl::StrCat("weight ", static_cast<int>(op.weight), " layer ",
                                             op.layer, " slices ", slices),
                                weights + excess)
              .second;
      memory.panel_bytes += is_new ? excess : 0;
    }
    const double cache = CacheMemoryBytes(op);
    if (cache > 0) {
      buffers[absl::StrCat("cache layer ", op.layer, " ", ToWord(inputs.plan.attention_cache), " ",
                           layout.tensor, " ", layout.replica, " of ", layout.num_replicas, " ",
                           inputs.plan.speculative.draft_tokens)] = cache;
    }
  }
  for (const auto& [tensor, bytes] : TensorBytes(step)) {
    if (tensor == Tensor::kTokenIds) {
      memory.own_bytes += static_cast<double>(bytes);
    } else if (tensor == Tensor::kDequantGateUp || tensor == Tensor::kDequantDown) {
      buffers[absl::StrCat("copies ", static_cast<int>(tensor), " bytes ", bytes)] =
          static_cast<double>(bytes);
    } else if (!IsKeptElsewhere(tensor)) {
      const int64_t size = bytes + ScratchGuardBytes(tensor);
      buffers[ScratchKey(ScratchName(tensor), size)] = static_cast<double>(size);
    }
  }
  memory.workspace_bytes = static_cast<double>(workspace);
  buffers[ScratchKey("workspace", workspace)] = memory.workspace_bytes;
  memory.own_bytes += static_cast<double>(fused_workspace) +
                      DrawMemoryBytes(inputs.model, inputs.plan, inputs.point, layout, step);
  return memory;
}

}  // namespace lastflop
