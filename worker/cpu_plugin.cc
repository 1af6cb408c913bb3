#include "worker/cpu_plugin.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/plain_weights.h"

namespace lastflop {
namespace {

constexpr auto kGuard = std::byte{0xFF};

// The plugin, which the layers of a step share.
absl::StatusOr<std::shared_ptr<PluginMoe>> PluginOf(const CpuStepInputs& inputs,
                                                    const FusedMoeShape& shape, CpuStep& step,
                                                    ThreadPool& pool) {
  for (const CpuOp& other : step.ops) {
    if (other.plugin != nullptr) {
      return other.plugin;
    }
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      lastflop_moe_problem problem,
      PluginProblemOf(shape, inputs.model.num_experts, step.layout.first_expert));
  problem.device = LASTFLOP_DEVICE_CPU;
  problem.num_threads = pool.num_threads();
  if (inputs.plugins == nullptr) {
    return PluginHost({}, {}).Load(inputs.plan.moe.plugin).status();
  }
  LASTFLOP_ASSIGN_OR_RETURN(const Plugin* plugin, inputs.plugins->Load(inputs.plan.moe.plugin));
  return PluginMoe::Create(
      *plugin, problem,
      [&pool](int64_t num_tasks, absl::FunctionRef<void(int64_t task, int thread)> fn) {
        pool.ParallelFor(num_tasks, fn);
      });
}

// One weight of a layer: `described` knows its values, `plain` gets them as a checkpoint has them.
absl::Status LoadPlain(const WeightPlace& place, CpuBufferStore& store, ThreadPool& pool,
                       std::optional<CpuWeights>& described, CpuBufferStore::Shared& plain,
                       const void*& weights, const void*& scales) {
  LASTFLOP_ASSIGN_OR_RETURN(CpuWeights of_place, CpuWeights::Describe(place));
  described.emplace(std::move(of_place));
  const PackedLayout& layout = described->layout();
  LASTFLOP_ASSIGN_OR_RETURN(
      const PlainLayout plain_layout,
      PlainLayout::Create(place.storage, layout.num_matrices, layout.rows, layout.cols));
  LASTFLOP_ASSIGN_OR_RETURN(plain, store.Get(absl::StrCat("plain ", place.Key()),
                                             plain_layout.bytes(), [&](AlignedBuffer& memory) {
                                               FillPlainWeights(place.slice, layout, plain_layout,
                                                                memory.data(), pool);
                                               return absl::OkStatus();
                                             }));
  weights = plain->data();
  scales = plain_layout.scale_bytes > 0 ? plain->data() + plain_layout.scale_begin : nullptr;
  return absl::OkStatus();
}

// The bytes from `begin` on that are not the guard's, at most kPluginGuardBytes are looked at.
size_t NumWritten(const AlignedBuffer& buffer, size_t begin) {
  const size_t end = std::min(buffer.bytes(), begin + kPluginGuardBytes);
  return static_cast<size_t>(std::count_if(buffer.data() + begin, buffer.data() + end,
                                           [](std::byte value) { return value != kGuard; }));
}

void Fill(AlignedBuffer& buffer, size_t begin) {
  const size_t end = std::min(buffer.bytes(), begin + kPluginGuardBytes);
  std::fill(buffer.data() + begin, buffer.data() + end, kGuard);
}

}  // namespace

absl::Status LoadCpuPlugin(const CpuStepInputs& inputs, const FusedMoeShape& shape, CpuStep& step,
                           CpuBufferStore& store, ThreadPool& pool, CpuOp& op) {
  LASTFLOP_ASSIGN_OR_RETURN(op.plugin, PluginOf(inputs, shape, step, pool));
  op.plugin_weights.gate_up_tensor_scale = 1;
  op.plugin_weights.down_tensor_scale = 1;
  const auto place_of = [&](Weight weight) {
    return PlaceOfWeight(inputs.model, step.layout, weight, op.op->layer, shape.storage,
                         inputs.data);
  };
  LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace gate_up, place_of(Weight::kExpertGateUp));
  LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace down, place_of(Weight::kExpertDown));
  LASTFLOP_RETURN_IF_ERROR(LoadPlain(gate_up, store, pool, op.weights, op.plain,
                                     op.plugin_weights.gate_up, op.plugin_weights.gate_up_scales));
  LASTFLOP_RETURN_IF_ERROR(LoadPlain(down, store, pool, op.down_weights, op.down_plain,
                                     op.plugin_weights.down, op.plugin_weights.down_scales));
  if (!op.plugin->has_prepared()) {
    return absl::OkStatus();
  }
  const auto bytes = static_cast<size_t>(op.plugin->needs().prepared_bytes);
  LASTFLOP_ASSIGN_OR_RETURN(
      op.prepared,
      store.Get(absl::StrCat("prepared by plugin:", op.plugin->plugin().name, " for ",
                             shape.num_tokens, " tokens ", gate_up.Key(), " and ", down.Key()),
                bytes, [&](AlignedBuffer& memory) {
                  return op.plugin->Prepare(op.plugin_weights, memory.data(), nullptr);
                }));
  // The plain ones may go; the store keeps them as long as there is room.
  op.plain.reset();
  op.down_plain.reset();
  op.plugin_weights = {};
  return absl::OkStatus();
}

absl::Status RunCpuPlugin(CpuStep& step, CpuOp& op, const FusedMoeShape& shape) {
  const int64_t num_tokens = step.expert_tokens();
  if (num_tokens == 0) {
    return absl::OkStatus();
  }
  const int64_t count = num_tokens * shape.hidden_size;
  const CpuRouting& routing = step.routing[static_cast<size_t>(op.moe_index)];
  const bool received = step.layout.data_attention;
  lastflop_moe_call call{};
  call.num_tokens = num_tokens;
  call.in = step.As<Bf16>(op.op->in, count).data();
  call.expert_ids = received ? step.received_ids.data() : routing.expert_ids.data();
  call.expert_weights = received ? step.received_weights.data() : routing.weights.data();
  call.shared = shape.add_shared ? step.As<Bf16>(Tensor::kSharedOut, count).data() : nullptr;
  call.weights = op.plugin->has_prepared() ? nullptr : &op.plugin_weights;
  call.prepared = op.plugin->has_prepared() ? op.prepared->data() : nullptr;
  call.out = step.As<Bf16>(op.op->out, count).data();
  call.workspace = step.workspace.data();
  return op.plugin->Run(call);
}

void GuardPlugin(CpuStep& step, CpuOp& op, int64_t out_values) {
  Fill(step.tensors.at(op.op->out), static_cast<size_t>(out_values) * sizeof(Bf16));
  if (op.plugin != nullptr) {
    Fill(step.workspace, static_cast<size_t>(op.plugin->needs().workspace_bytes));
  }
}

std::optional<std::string> BrokenGuard(CpuStep& step, CpuOp& op, int64_t out_values) {
  const size_t past_out =
      NumWritten(step.tensors.at(op.op->out), static_cast<size_t>(out_values) * sizeof(Bf16));
  if (past_out > 0) {
    return absl::StrCat("it wrote past the end of its output: ", past_out, " of the ",
                        kPluginGuardBytes, " bytes behind it have changed");
  }
  if (op.plugin == nullptr) {
    return std::nullopt;
  }
  const size_t past_workspace =
      NumWritten(step.workspace, static_cast<size_t>(op.plugin->needs().workspace_bytes));
  if (past_workspace > 0) {
    return absl::StrCat("it wrote past the end of its workspace of ",
                        op.plugin->needs().workspace_bytes, " bytes: ", past_workspace,
                        " bytes behind it have changed");
  }
  return std::nullopt;
}

}  // namespace lastflop
