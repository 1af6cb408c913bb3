#include "worker/cuda_step.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collectives/cuda/nccl_all_to_all_cuda.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/compare_cuda.h"
#include "kernels/dequant/dequant_cuda.h"
#include "kernels/fp4.h"
#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/pad_rows/pad_rows_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/router/router_cuda.h"
#include "kernels/sample/sample_cuda.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "step/make_step.h"
#include "step/tensors.h"
#include "worker/cpu_step.h"
#include "worker/cuda_plugin.h"
#include "worker/cuda_step_memory.h"
#include "worker/cuda_weights.h"
#include "worker/draw_memory.h"
#include "worker/kv_place.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

// Memory that holds nothing between the steps of different arms. Poisoned once: rows that no kernel
// writes, as those past the last pair, are not a number wherever they are read.
absl::StatusOr<CudaBufferStore::Shared> SharedScratch(const std::string& name, size_t bytes,
                                                      CudaBufferStore& store, cudaStream_t stream) {
  return store.Get(
      ScratchKey(name, static_cast<int64_t>(bytes)), bytes, [stream](DeviceBuffer& buffer) {
        return buffer.bytes() == 0
                   ? absl::OkStatus()
                   : LaunchPoison(buffer.data(), static_cast<int64_t>(buffer.bytes()), stream);
      });
}

// Loads what each kind of op needs, and finds the largest workspace.
class OpLoader {
 public:
  OpLoader(const CudaStepInputs& inputs, CudaStep& step, CudaBufferStore& store,
           CudaContext& context)
      : inputs_(inputs), step_(step), store_(store), context_(context) {}

  absl::Status Load(const Op& op, CudaOp& cuda_op) {
    op_ = &op;
    cuda_op_ = &cuda_op;
    return std::visit([this](const auto& shape) { return LoadShape(shape); }, op.shape);
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t fused_workspace_bytes() const { return fused_workspace_bytes_; }

 private:
  absl::Status LoadShape(const EmbeddingShape& shape) {
    return LoadRows(PlaceOfEmbedding(inputs_.model, shape, inputs_.data), cuda_op_->weights);
  }

  absl::Status LoadShape(const NormShape& shape) {
    return LoadRows(PlaceOfGain(op_->weight, op_->layer, shape.size, inputs_.data),
                    cuda_op_->weights);
  }

  absl::Status LoadShape(const GemmShape& shape) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
    if (shape.bias) {
      LASTFLOP_RETURN_IF_ERROR(LoadRows(PlaceOfBias(place), cuda_op_->bias));
    }
    if (shape.storage.format != WeightFormat::kBf16) {
      return LoadFp8Gemm(shape, place);
    }
    LASTFLOP_RETURN_IF_ERROR(LoadRows(place, cuda_op_->weights));
    cuda_op_->gemm = {.num_tokens = shape.num_tokens,
                      .out_features = shape.out_features,
                      .in_features = shape.in_features,
                      .in_stride = shape.in_stride > 0 ? shape.in_stride : shape.in_features,
                      .out_stride = shape.out_features,
                      .fp32_out = shape.fp32_out,
                      .bias = shape.bias};
    return context_.cublas_lt->Prepare(cuda_op_->gemm);
  }

  absl::Status LoadFp8Gemm(const GemmShape& shape, const WeightPlace& place) {
    if (shape.fp32_out) {
      return absl::UnimplementedError(
          absl::StrCat(ToWord(shape.storage.format), " weights with fp32 results"));
    }
    LASTFLOP_RETURN_IF_ERROR(
        CheckGroupedGemmCuda(OneExpertOf(shape), {.in_stride = shape.in_stride}));
    LASTFLOP_ASSIGN_OR_RETURN(cuda_op_->dense_pairs, DensePairsOf(shape.num_tokens));
    return LoadPanels(place, cuda_op_->weights);
  }

  absl::Status LoadShape(const HeadGemmShape& shape) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, {}));
    LASTFLOP_RETURN_IF_ERROR(LoadRows(place, cuda_op_->weights));
    cuda_op_->gemm = {.num_tokens = shape.num_tokens,
                      .out_features = shape.out_features,
                      .in_features = shape.in_features,
                      .in_stride = shape.num_heads * shape.in_stride,
                      .out_stride = shape.num_heads * shape.out_stride,
                      .batch = shape.num_heads,
                      .in_batch_stride = shape.in_stride,
                      .weight_batch_stride = shape.out_features * shape.in_features,
                      .out_batch_stride = shape.out_stride};
    return context_.cublas_lt->Prepare(cuda_op_->gemm);
  }

  absl::Status LoadShape(const RopeShape& shape) {
    if (step_.rope_table.bytes() == 0) {
      LASTFLOP_ASSIGN_OR_RETURN(step_.rope_table,
                                DeviceBuffer::Create(static_cast<size_t>(RopeTableBytes(shape))));
      LASTFLOP_RETURN_IF_ERROR(
          LaunchRopeTable(shape, step_.rope_table.As<float2>(), context_.stream.get()));
    }
    return LoadCache(AttentionOf(shape));
  }

  absl::Status LoadShape(const AttentionShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(CheckAttentionCuda(shape));
    NeedWorkspace();
    return LoadCache(shape);
  }

  absl::Status LoadShape(const RouterShape& /*shape*/) {
    NeedWorkspace();
    return absl::OkStatus();
  }

  absl::Status LoadShape(const PermuteShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(CheckPermuteCuda(shape));
    if (step_.pairs_memory == nullptr) {
      int tile_tokens = 0;
      const int64_t bytes = PairsBytesOf(shape, step_.model, step_.plan, tile_tokens);
      LASTFLOP_ASSIGN_OR_RETURN(
          step_.pairs_memory,
          SharedScratch("pairs", static_cast<size_t>(bytes), store_, context_.stream.get()));
      step_.pairs = PlacePairs(shape, tile_tokens, step_.pairs_memory->data());
    }
    return absl::OkStatus();
  }

  absl::Status LoadShape(const PadShape& shape) { return CheckPadRowsCuda(shape); }

  absl::Status LoadShape(const ExpertGemmShape& shape) {
    if (shape.padded_rows > 0) {
      return LoadPaddedExperts(shape);
    }
    LASTFLOP_RETURN_IF_ERROR(CheckGroupedGemmCuda(shape, {.row_order = RowOrderOf(op_->weight)}));
    NeedWorkspace();
    if (shape.storage.format == WeightFormat::kNvfp4) {
      LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
      cuda_op_->tensor_scale = Nvfp4TensorScale(place.slice.amplitude);
    }
    return LoadExperts(op_->weight, shape.storage, cuda_op_->weights, cuda_op_->copies);
  }

  absl::Status LoadPaddedExperts(const ExpertGemmShape& shape) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
    LASTFLOP_RETURN_IF_ERROR(LoadRows(place, cuda_op_->weights));
    cuda_op_->gemm = {.num_tokens = shape.padded_rows,
                      .out_features = shape.out_features,
                      .in_features = shape.in_features,
                      .in_stride = shape.in_features,
                      .out_stride = shape.out_features,
                      .batch = shape.num_local_experts,
                      .in_batch_stride = shape.padded_rows * shape.in_features,
                      .weight_batch_stride = shape.out_features * shape.in_features,
                      .out_batch_stride = shape.padded_rows * shape.out_features};
    return context_.cublas_lt->Prepare(cuda_op_->gemm);
  }

  absl::Status LoadShape(const ActivationShape& shape) { return CheckSwigluCuda(shape); }
  absl::Status LoadShape(const CombineShape& /*shape*/) { return absl::OkStatus(); }

  absl::Status LoadShape(const FusedMoeShape& shape) {
    if (IsPluginOp(*op_)) {
      LASTFLOP_RETURN_IF_ERROR(
          LoadCudaPlugin(inputs_, step_, store_, context_.stream.get(), *cuda_op_));
      Need(cuda_op_->plugin->needs().workspace_bytes + static_cast<int64_t>(kPluginGuardBytes));
      return absl::OkStatus();
    }
    LASTFLOP_RETURN_IF_ERROR(CheckFusedMoeCuda(shape, {}));
    fused_workspace_bytes_ = std::max(fused_workspace_bytes_, FusedMoeCudaWorkspaceBytes(shape));
    LASTFLOP_RETURN_IF_ERROR(
        LoadExperts(Weight::kExpertGateUp, shape.storage, cuda_op_->weights, cuda_op_->copies));
    return LoadExperts(Weight::kExpertDown, shape.storage, cuda_op_->down_weights,
                       cuda_op_->down_copies);
  }

  absl::Status LoadShape(const DequantShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(CheckDequantCuda(shape));
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
    LASTFLOP_RETURN_IF_ERROR(LoadPanels(place, cuda_op_->weights));
    return LoadCopies(op_->weight, cuda_op_->copies);
  }

  absl::Status LoadShape(const AllReduceShape& /*shape*/) { return absl::OkStatus(); }
  absl::Status LoadShape(const AllToAllShape& shape) {
    if (inputs_.shard) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(step_.tokens, SplitOf(shape));
    if (shape.combine && shape.algorithm == AllToAllAlgorithm::kNccl) {
      Need(NcclReturnedElements(step_.tokens, static_cast<int>(step_.layout.replica)) *
           static_cast<int64_t>(sizeof(__nv_bfloat16)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenSplit> SplitOf(const AllToAllShape& shape) const {
    if (shape.ranks > kMaxPeerRanks) {
      return absl::UnimplementedError(absl::StrCat("parallel.expert=", shape.ranks,
                                                   ": the CUDA backend exchanges tokens among up "
                                                   "to ",
                                                   kMaxPeerRanks, " ranks"));
    }
    TokenSplit split{.num_ranks = static_cast<int>(shape.ranks),
                     .hidden_size = shape.hidden_size,
                     .top_k = shape.top_k,
                     .num_experts = shape.num_experts};
    for (int rank = 0; rank < split.num_ranks; ++rank) {
      split.first_token[rank + 1] =
          split.first_token[rank] +
          SequencesOfReplica(step_.point.batch, step_.layout.num_replicas, rank) *
              QueryTokens(step_.plan, step_.point);
    }
    LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
    return split;
  }
  absl::Status LoadShape(const StageTransferShape& /*shape*/) {
    return absl::UnimplementedError("parallel.pipeline: the CUDA backend has no hand-over");
  }

  absl::Status LoadShape(const SampleShape& shape) {
    NeedWorkspace();
    if (shape.ranks > 1 && step_.candidates.bytes() == 0) {
      LASTFLOP_ASSIGN_OR_RETURN(
          step_.candidates,
          DeviceBuffer::Create(static_cast<size_t>((shape.ranks + 1) * shape.num_tokens) *
                               sizeof(Candidate)));
    }
    return absl::OkStatus();
  }

  void NeedWorkspace() {
    Need(WorkspaceBytesOf(op_->shape, step_.num_expert_tokens(), context_.num_sms));
  }

  void Need(int64_t bytes) { workspace_bytes_ = std::max(workspace_bytes_, bytes); }

  absl::StatusOr<const CudaPairs*> DensePairsOf(int64_t num_tokens) {
    const auto [found, is_new] = step_.dense_pairs.try_emplace(num_tokens);
    if (is_new) {
      LASTFLOP_ASSIGN_OR_RETURN(found->second,
                                CudaDensePairs::Create(num_tokens, context_.stream.get()));
    }
    return &found->second.pairs;
  }

  absl::StatusOr<WeightPlace> Place(Weight weight, const WeightStorage& storage) {
    return PlaceOfWeight(inputs_.model, step_.layout, weight, op_->layer, storage, inputs_.data);
  }

  absl::Status LoadRows(const WeightPlace& place, CudaBufferStore::Shared& weights) {
    LASTFLOP_ASSIGN_OR_RETURN(weights, LoadCudaRows(place, store_, context_.stream.get()));
    return absl::OkStatus();
  }

  absl::Status LoadPanels(const WeightPlace& place, CudaBufferStore::Shared& weights) {
    LASTFLOP_ASSIGN_OR_RETURN(weights, LoadCudaPanels(place, store_, context_.stream.get()));
    return absl::OkStatus();
  }

  // Expert weights as stored, or the copies that a dequant op makes of them.
  absl::Status LoadExperts(Weight weight, const WeightStorage& storage,
                           CudaBufferStore::Shared& weights, CudaBufferStore::Shared& copies) {
    if (op_->weights_dequantized) {
      return LoadCopies(weight, copies);
    }
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(weight, storage));
    return LoadPanels(place, weights);
  }

  // One buffer for all layers: a layer's copies are read before the next one's are made.
  absl::Status LoadCopies(Weight weight, CudaBufferStore::Shared& copies) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(weight, {}));
    LASTFLOP_ASSIGN_OR_RETURN(const size_t bytes, CudaPanelBytes(place));
    LASTFLOP_ASSIGN_OR_RETURN(
        copies, store_.Get(CopiesKey(weight, bytes), bytes,
                           [](DeviceBuffer& /*buffer*/) { return absl::OkStatus(); }));
    return absl::OkStatus();
  }

  absl::Status LoadCache(const AttentionShape& shape) {
    const KvSlice slice = KvSliceOf(inputs_.model, step_.layout, shape, step_.first_sequence());
    LASTFLOP_ASSIGN_OR_RETURN(cuda_op_->cache, LoadCudaCache(shape, slice, op_->layer, inputs_.data,
                                                             store_, context_.stream.get()));
    cuda_op_->cache_key_bytes =
        static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache));
    return absl::OkStatus();
  }

  const CudaStepInputs& inputs_;
  CudaStep& step_;
  CudaBufferStore& store_;
  CudaContext& context_;
  const Op* op_ = nullptr;
  CudaOp* cuda_op_ = nullptr;
  int64_t workspace_bytes_ = 0;
  int64_t fused_workspace_bytes_ = 0;
};

absl::StatusOr<DeviceBuffer> Zeroed(size_t bytes, cudaStream_t stream) {
  LASTFLOP_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(bytes));
  if (bytes > 0) {
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(buffer.data(), 0, bytes, stream),
                                  "zeroing a buffer");
  }
  return buffer;
}

absl::Status AllocateTensors(CudaStep& step, CudaBufferStore& store, cudaStream_t stream) {
  for (const auto& [tensor, bytes] : TensorBytes(step.step)) {
    if (IsKeptElsewhere(tensor)) {
      continue;
    }
    // Both arms have their draw at the same time, and its tokens.
    const auto size = static_cast<size_t>(bytes + ScratchGuardBytes(tensor));
    if (tensor == Tensor::kTokenIds) {
      LASTFLOP_ASSIGN_OR_RETURN(DeviceBuffer own, Zeroed(size, stream));
      step.tensors[tensor] = std::make_shared<DeviceBuffer>(std::move(own));
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(step.tensors[tensor],
                              SharedScratch(ScratchName(tensor), size, store, stream));
  }
  return absl::OkStatus();
}

// Routings of `tokens` tokens each, in one block of memory.
absl::StatusOr<std::vector<CudaRouting>> MakeRoutings(const CudaStep& step, int64_t tokens,
                                                      size_t count, cudaStream_t stream,
                                                      DeviceBuffer& memory) {
  const auto slots = static_cast<size_t>(tokens * step.model.top_k);
  const size_t bytes = slots * (sizeof(int32_t) + sizeof(float));
  LASTFLOP_ASSIGN_OR_RETURN(memory, Zeroed(count * bytes, stream));
  std::vector<CudaRouting> routings;
  for (size_t i = 0; i < count; ++i) {
    routings.push_back({.expert_ids = memory.As<int32_t>(i * bytes),
                        .weights = memory.As<float>(i * bytes + slots * sizeof(int32_t))});
  }
  return routings;
}

absl::Status AllocateRouting(CudaStep& step, int num_moe_layers, cudaStream_t stream) {
  const auto layers = static_cast<size_t>(num_moe_layers);
  LASTFLOP_ASSIGN_OR_RETURN(
      step.routing, MakeRoutings(step, step.step.num_tokens, layers, stream, step.routing_memory));
  if (step.layout.data_attention) {
    LASTFLOP_ASSIGN_OR_RETURN(
        const std::vector<CudaRouting> received,
        MakeRoutings(step, step.num_expert_tokens(), 1, stream, step.received_memory));
    step.received = received[0];
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(
            step.received.expert_ids, 0xFF,
            static_cast<size_t>(step.num_expert_tokens() * step.model.top_k) * sizeof(int32_t),
            stream),
        "emptying a routing");
    LASTFLOP_ASSIGN_OR_RETURN(step.all_routing, MakeRoutings(step, step.num_expert_tokens(), layers,
                                                             stream, step.all_routing_memory));
  }
  const auto experts = static_cast<size_t>(step.model.num_experts);
  LASTFLOP_ASSIGN_OR_RETURN(
      step.router_scores,
      DeviceBuffer::Create(layers * static_cast<size_t>(step.num_expert_tokens()) * experts *
                           sizeof(float)));
  if (step.model.router.has_bias) {
    LASTFLOP_ASSIGN_OR_RETURN(step.router_bias, Zeroed(experts * sizeof(float), stream));
  }
  return absl::OkStatus();
}

}  // namespace

DeviceKvCache CudaOp::kv() const {
  DeviceKvCache view{.keys = cache->data()};
  if (cache->bytes() > cache_key_bytes) {
    view.values = cache->data() + cache_key_bytes;
  }
  return view;
}

int64_t CudaStep::num_sequences() const {
  return SequencesOfReplica(point.batch, layout.num_replicas, layout.replica);
}

int64_t CudaStep::first_sequence() const {
  int64_t first = 0;
  for (int64_t replica = 0; replica < layout.replica; ++replica) {
    first += SequencesOfReplica(point.batch, layout.num_replicas, replica);
  }
  return first;
}

int64_t CudaStep::num_expert_tokens() const { return NumExpertTokens(plan, point, layout, step); }

int64_t CudaStep::first_own_token() const {
  return layout.data_attention ? first_sequence() * QueryTokens(plan, point) : 0;
}

const CudaRouting& CudaStep::expert_routing(int moe_index) const {
  const auto index = static_cast<size_t>(moe_index);
  if (!layout.data_attention) {
    return routing[index];
  }
  return shard ? all_routing[index] : received;
}

absl::StatusOr<std::unique_ptr<CudaStep>> LoadCudaStep(const CudaStepInputs& inputs,
                                                       CudaBufferStore& store,
                                                       CudaContext& context) {
  auto step = std::make_unique<CudaStep>();
  step->model = inputs.model;
  step->plan = inputs.plan;
  step->point = inputs.point;
  step->shard = inputs.shard;
  if (inputs.rank >= inputs.plan.num_ranks()) {
    return step;
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      step->step,
      MakeStep(
          inputs.model, inputs.plan, inputs.point, inputs.rank,
          {.layers_kept = inputs.layers_kept, .load = {}, .experts_only = inputs.experts_only}));
  step->layout = MakeLayout(inputs.model, inputs.plan, inputs.rank);
  OpLoader loader(inputs, *step, store, context);
  step->ops.resize(step->step.ops.size());
  const std::vector<int> moe_indices = MoeIndices(inputs.model, step->step);
  for (size_t i = 0; i < step->ops.size(); ++i) {
    step->ops[i].op = &step->step.ops[i];
    step->ops[i].moe_index = moe_indices[i];
    LASTFLOP_RETURN_IF_ERROR(loader.Load(step->step.ops[i], step->ops[i]));
  }
  LASTFLOP_RETURN_IF_ERROR(AllocateTensors(*step, store, context.stream.get()));
  const auto last = std::max_element(moe_indices.begin(), moe_indices.end());
  LASTFLOP_RETURN_IF_ERROR(
      AllocateRouting(*step, last == moe_indices.end() ? 0 : *last + 1, context.stream.get()));
  LASTFLOP_ASSIGN_OR_RETURN(
      step->workspace, SharedScratch("workspace", static_cast<size_t>(loader.workspace_bytes()),
                                     store, context.stream.get()));
  LASTFLOP_ASSIGN_OR_RETURN(
      step->fused_workspace,
      Zeroed(static_cast<size_t>(loader.fused_workspace_bytes()), context.stream.get()));
  LASTFLOP_RETURN_IF_ERROR(context.stream.Synchronize());
  return step;
}

}  // namespace lastflop
