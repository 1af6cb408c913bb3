#include "worker/cuda_plugin.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/plain_weights.h"
#include "kernels/cuda/plain_weights_cuda.h"
#include "kernels/fp4.h"
#include "worker/cpu_step.h"
#include "worker/cuda_run_op.h"
#include "worker/cuda_weights.h"
#include "worker/plugin_host.h"
#include "worker/plugin_watch.h"

namespace lastflop {
namespace {

constexpr int kGuard = 0xFF;

// "plugin:fast in run()"
std::string In(const CudaOp& op, absl::string_view function) {
  return absl::StrCat("plugin:", op.plugin->plugin().name, " in ", function);
}

absl::StatusOr<const Plugin*> PluginOf(const CudaStepInputs& inputs) {
  const std::string& name = inputs.plan.moe.plugin;
  if (inputs.plugins == nullptr) {
    return PluginHost({}, {}).Load(name).status();
  }
  LASTFLOP_ASSIGN_OR_RETURN(const Plugin* plugin, inputs.plugins->Load(name));
  if (!plugin->functions->takes_device_memory()) {
    return absl::UnimplementedError(
        absl::StrCat("moe.kernel=plugin:", name, ": plugins in Python run on the CPU backend"));
  }
  return plugin;
}

absl::StatusOr<lastflop_moe_problem> ProblemOf(const CudaStepInputs& inputs, const Layout& layout,
                                               const FusedMoeShape& shape) {
  LASTFLOP_ASSIGN_OR_RETURN(lastflop_moe_problem problem,
                            PluginProblemOf(shape, inputs.model.num_experts, layout.first_expert));
  problem.device = LASTFLOP_DEVICE_CUDA;
  problem.device_index = inputs.device_index;
  problem.compute_capability = inputs.compute_capability;
  return problem;
}

absl::Status CheckCapture(const CudaStepInputs& inputs, const lastflop_moe_needs& needs) {
  const GraphMode mode = inputs.plan.launch.graph;
  if (mode == GraphMode::kNone || needs.capturable != 0) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("moe.kernel=plugin:", inputs.plan.moe.plugin,
                   ": its run() cannot be captured, and launch.graph=", ToWord(mode),
                   " captures it; launch.graph=none does not"));
}

struct PlainPlace {
  WeightPlace place;
  PlainLayout layout;
};

absl::StatusOr<PlainPlace> PlainPlaceOf(const CudaStepInputs& inputs, const Layout& layout,
                                        Weight weight, int layer, const WeightStorage& storage) {
  PlainPlace plain;
  LASTFLOP_ASSIGN_OR_RETURN(
      plain.place, PlaceOfWeight(inputs.model, layout, weight, layer, storage, inputs.data));
  LASTFLOP_ASSIGN_OR_RETURN(const CudaWeightSlice slice, CudaSliceOf(plain.place));
  LASTFLOP_ASSIGN_OR_RETURN(
      plain.layout, PlainLayout::Create(storage, slice.num_matrices, slice.rows(), slice.cols));
  return plain;
}

// A layer's weights as a checkpoint has them.
absl::StatusOr<CudaBufferStore::Shared> LoadPlain(const PlainPlace& plain, CudaBufferStore& store,
                                                  cudaStream_t stream) {
  LASTFLOP_ASSIGN_OR_RETURN(const CudaWeightSlice slice, CudaSliceOf(plain.place));
  return store.Get(absl::StrCat("plain ", plain.place.Key()), plain.layout.bytes(),
                   [&](DeviceBuffer& buffer) {
                     return LaunchFillPlainWeights(
                         slice, buffer.data(), buffer.data() + plain.layout.scale_begin, stream);
                   });
}

lastflop_moe_weights WeightsOf(const PlainPlace& gate_up, const DeviceBuffer& gate_up_memory,
                               const PlainPlace& down, const DeviceBuffer& down_memory) {
  const auto scales_of = [](const PlainPlace& plain, const DeviceBuffer& memory) {
    return plain.layout.scale_bytes > 0 ? memory.data() + plain.layout.scale_begin : nullptr;
  };
  const auto tensor_scale_of = [](const PlainPlace& plain) {
    return plain.place.storage.format == WeightFormat::kNvfp4
               ? Nvfp4TensorScale(plain.place.slice.amplitude)
               : 1.0F;
  };
  return {.gate_up = gate_up_memory.data(),
          .gate_up_scales = scales_of(gate_up, gate_up_memory),
          .down = down_memory.data(),
          .down_scales = scales_of(down, down_memory),
          .gate_up_tensor_scale = tensor_scale_of(gate_up),
          .down_tensor_scale = tensor_scale_of(down)};
}

// What a call into the plugin left: its own answer, then what CUDA keeps of its launches (of a
// plugin with a runtime of its own, only what broke the device) and whether the device is still the
// rank's.
absl::Status AfterCall(const CudaOp& op, absl::string_view function, const absl::Status& answer) {
  int device = 0;
  const cudaError_t asked = cudaGetDevice(&device);
  const cudaError_t error = cudaGetLastError();
  const absl::Status of_cuda = CudaStatus(error != cudaSuccess ? error : asked, In(op, function));
  if (!answer.ok()) {
    return of_cuda.ok() ? answer
                        : absl::Status(absl::IsDataLoss(of_cuda) ? of_cuda.code() : answer.code(),
                                       absl::StrCat(answer.message(), "; ", of_cuda.message()));
  }
  LASTFLOP_RETURN_IF_ERROR(of_cuda);
  const int wanted = op.plugin->problem().device_index;
  if (device != wanted) {
    cudaSetDevice(wanted);
    return absl::InternalError(absl::StrCat(In(op, function), " left device ", device,
                                            " current, and was called with ", wanted));
  }
  return absl::OkStatus();
}

absl::Status Prepare(CudaOp& op, const lastflop_moe_weights& weights, DeviceBuffer& memory,
                     cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(
      AfterCall(op, "prepare()", op.plugin->Prepare(weights, memory.data(), stream)));
  // The weights that it reads are gone afterwards, and an error of its kernels is its own.
  const std::string where = In(op, "what prepare() enqueued");
  const PluginWatch::Call watched(op.plugin->plugin().watch, where);
  return CudaStatus(cudaStreamSynchronize(stream), where);
}

// Whether the capture that was going on before a call goes on after it.
absl::Status AfterCapture(const CudaOp& op, const absl::Status& answer, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(stream, &capture);
  if (asked == cudaSuccess && capture == cudaStreamCaptureStatusActive) {
    return answer;
  }
  cudaGetLastError();  // Of the question.
  return absl::InternalError(absl::StrCat(
      In(op, "run()"),
      " broke the capture of a graph, though it says that it is capturable: it must not wait, "
      "allocate, use another stream or launch what CUDA refuses",
      answer.ok() ? "" : absl::StrCat(" (", answer.message(), ")"),
      "; launch.graph=none runs it without"));
}

// The bytes from `begin` on that are not the guard's, at most kPluginGuardBytes are looked at.
absl::StatusOr<int64_t> NumWritten(const DeviceBuffer& buffer, size_t begin, cudaStream_t stream) {
  std::array<std::byte, kPluginGuardBytes> found{};
  const size_t bytes = std::min(buffer.bytes() - begin, found.size());
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(found.data(), buffer.data() + begin, bytes, cudaMemcpyDeviceToHost, stream),
      "reading a guard");
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream), "reading a guard");
  return std::count_if(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(bytes),
                       [](std::byte value) { return value != std::byte{kGuard}; });
}

}  // namespace

absl::StatusOr<CudaPluginMemory> MemoryOfCudaPlugin(const CudaStepInputs& inputs,
                                                    const Layout& layout, const Op& op) {
  const auto& shape = std::get<FusedMoeShape>(op.shape);
  LASTFLOP_ASSIGN_OR_RETURN(const Plugin* plugin, PluginOf(inputs));
  LASTFLOP_ASSIGN_OR_RETURN(const lastflop_moe_problem problem, ProblemOf(inputs, layout, shape));
  LASTFLOP_ASSIGN_OR_RETURN(const lastflop_moe_needs needs,
                            PluginMoe::QueryNeeds(*plugin, problem));
  LASTFLOP_RETURN_IF_ERROR(CheckCapture(inputs, needs));
  double plain_bytes = 0;
  for (const Weight weight : {Weight::kExpertGateUp, Weight::kExpertDown}) {
    LASTFLOP_ASSIGN_OR_RETURN(const PlainPlace plain,
                              PlainPlaceOf(inputs, layout, weight, op.layer, shape.storage));
    plain_bytes += static_cast<double>(plain.layout.bytes());
  }
  const bool is_prepared = needs.prepared_bytes > 0;
  return CudaPluginMemory{
      .workspace_bytes = needs.workspace_bytes + static_cast<int64_t>(kPluginGuardBytes),
      .weight_bytes = is_prepared ? static_cast<double>(needs.prepared_bytes) : plain_bytes,
      .passing_bytes = is_prepared ? plain_bytes : 0};
}

absl::Status LoadCudaPlugin(const CudaStepInputs& inputs, CudaStep& step, CudaBufferStore& store,
                            cudaStream_t stream, CudaOp& op) {
  const auto& shape = std::get<FusedMoeShape>(op.op->shape);
  if (step.plugin == nullptr) {
    LASTFLOP_ASSIGN_OR_RETURN(const Plugin* plugin, PluginOf(inputs));
    LASTFLOP_ASSIGN_OR_RETURN(const lastflop_moe_problem problem,
                              ProblemOf(inputs, step.layout, shape));
    LASTFLOP_ASSIGN_OR_RETURN(step.plugin, PluginMoe::Create(*plugin, problem, nullptr));
    LASTFLOP_RETURN_IF_ERROR(CheckCapture(inputs, step.plugin->needs()));
  }
  op.plugin = step.plugin;
  const auto plain_place_of = [&](Weight weight) {
    return PlainPlaceOf(inputs, step.layout, weight, op.op->layer, shape.storage);
  };
  LASTFLOP_ASSIGN_OR_RETURN(const PlainPlace gate_up, plain_place_of(Weight::kExpertGateUp));
  LASTFLOP_ASSIGN_OR_RETURN(const PlainPlace down, plain_place_of(Weight::kExpertDown));
  const auto load_plain = [&]() -> absl::Status {
    LASTFLOP_ASSIGN_OR_RETURN(op.weights, LoadPlain(gate_up, store, stream));
    LASTFLOP_ASSIGN_OR_RETURN(op.down_weights, LoadPlain(down, store, stream));
    op.plugin_weights = WeightsOf(gate_up, *op.weights, down, *op.down_weights);
    return absl::OkStatus();
  };
  if (!op.plugin->has_prepared()) {
    return load_plain();
  }
  const auto bytes = static_cast<size_t>(op.plugin->needs().prepared_bytes);
  LASTFLOP_ASSIGN_OR_RETURN(
      op.prepared, store.Get(absl::StrCat("prepared by plugin:", op.plugin->plugin().name, " for ",
                                          shape.num_tokens, " tokens ", gate_up.place.Key(),
                                          " and ", down.place.Key()),
                             bytes, [&](DeviceBuffer& memory) -> absl::Status {
                               LASTFLOP_RETURN_IF_ERROR(load_plain());
                               return Prepare(op, op.plugin_weights, memory, stream);
                             }));
  // The plain ones may go; the store keeps them as long as there is room.
  op.weights.reset();
  op.down_weights.reset();
  op.plugin_weights = {};
  return absl::OkStatus();
}

absl::Status RunCudaPlugin(CudaStep& step, CudaOp& op, cudaStream_t stream) {
  const auto& shape = std::get<FusedMoeShape>(op.op->shape);
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamIsCapturing(stream, &capture),
                                "asking whether a stream is captured");
  const CudaRouting& routing = step.expert_routing(op.moe_index);
  const bool is_prepared = op.plugin->has_prepared();
  lastflop_moe_call call{};
  call.num_tokens = shape.num_tokens;
  call.in = step.At<void>(op.op->in);
  call.expert_ids = routing.expert_ids;
  call.expert_weights = routing.weights;
  call.shared = shape.add_shared ? step.At<void>(Tensor::kSharedOut) : nullptr;
  call.weights = is_prepared ? nullptr : &op.plugin_weights;
  call.prepared = is_prepared ? op.prepared->data() : nullptr;
  call.out = step.At<void>(op.op->out);
  call.workspace = step.workspace->data();
  call.stream = stream;
  const absl::Status answer = AfterCall(op, "run()", op.plugin->Run(call));
  return capture == cudaStreamCaptureStatusActive ? AfterCapture(op, answer, stream) : answer;
}

absl::Status WaitForCudaPlugin(const CudaStep& step, const Stream& stream) {
  const Plugin& plugin = step.plugin->plugin();
  const std::string where = absl::StrCat("plugin:", plugin.name, " in what run() enqueued");
  const PluginWatch::Call watched(plugin.watch, where);
  const absl::Status status = stream.Synchronize();
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

absl::Status NamingCudaPlugin(const CudaStep& step, const absl::Status& status) {
  if (status.ok() || step.plugin == nullptr) {
    return status;
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), "; the step runs plugin:",
                                                  step.plugin->plugin().name,
                                                  ", whose kernels the error may be of"));
}

absl::StatusOr<std::optional<std::string>> RunGuardedCudaPlugin(CudaStep& step, CudaOp& op,
                                                                CudaContext& context) {
  const cudaStream_t stream = context.stream.get();
  const DeviceBuffer& workspace = *step.workspace;
  const auto workspace_end = static_cast<size_t>(op.plugin->needs().workspace_bytes);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(workspace.data() + workspace_end, kGuard,
                      std::min(workspace.bytes() - workspace_end, kPluginGuardBytes), stream),
      "guarding a workspace");
  LASTFLOP_RETURN_IF_ERROR(context.stream.Synchronize());
  LASTFLOP_RETURN_IF_ERROR(RunCudaOp(step, op, context));
  LASTFLOP_RETURN_IF_ERROR(WaitForCudaPlugin(step, context.stream));
  const auto& shape = std::get<FusedMoeShape>(op.op->shape);
  const DeviceBuffer& out = *step.tensors.at(op.op->out);
  const auto out_end = static_cast<size_t>(shape.num_tokens * shape.hidden_size) * sizeof(Bf16);
  LASTFLOP_ASSIGN_OR_RETURN(const int64_t past_out, NumWritten(out, out_end, stream));
  if (past_out > 0) {
    return absl::StrCat("it wrote past the end of its output: ", past_out, " of the ",
                        kPluginGuardBytes, " bytes behind it have changed");
  }
  LASTFLOP_ASSIGN_OR_RETURN(const int64_t past_workspace,
                            NumWritten(workspace, workspace_end, stream));
  if (past_workspace > 0) {
    return absl::StrCat("it wrote past the end of its workspace of ", workspace_end,
                        " bytes: ", past_workspace, " bytes behind it have changed");
  }
  return std::nullopt;
}

}  // namespace lastflop
