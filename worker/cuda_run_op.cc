#include "worker/cuda_run_op.h"

#include <cuda_bf16.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/nccl_all_to_all_cuda.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/elementwise_cuda.h"
#include "kernels/dequant/dequant_cuda.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/moe_combine/moe_combine_cuda.h"
#include "kernels/pad_rows/pad_rows_cuda.h"
#include "kernels/quantize_rows/quantize_rows_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/router/router_cuda.h"
#include "kernels/sample/sample_cuda.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "worker/cuda_plugin.h"
#include "worker/cuda_weights.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

using Bf16Pointer = __nv_bfloat16*;

// Gives a stream's kernels an L2 window on a range of weights, and takes it away again.
class StreamWindow {
 public:
  StreamWindow(cudaStream_t stream, const PinnedRange& range) : stream_(stream), range_(range) {}

  // What fails between the two leaves no window on the stream, which later trials use.
  ~StreamWindow() { Close().IgnoreError(); }
  StreamWindow(const StreamWindow&) = delete;
  StreamWindow& operator=(const StreamWindow&) = delete;

  absl::Status Open() {
    is_open_ = range_.bytes > 0;
    return is_open_ ? Set(range_) : absl::OkStatus();
  }
  absl::Status Close() {
    return std::exchange(is_open_, false) ? Set(PinnedRange{}) : absl::OkStatus();
  }

 private:
  absl::Status Set(const PinnedRange& range) {
    cudaStreamAttrValue value{};
    value.accessPolicyWindow.base_ptr = const_cast<void*>(range.begin);
    value.accessPolicyWindow.num_bytes = range.bytes;
    value.accessPolicyWindow.hitRatio = range.hit_ratio;
    value.accessPolicyWindow.hitProp =
        range.bytes > 0 ? cudaAccessPropertyPersisting : cudaAccessPropertyNormal;
    value.accessPolicyWindow.missProp =
        range.bytes > 0 ? cudaAccessPropertyStreaming : cudaAccessPropertyNormal;
    return CudaStatus(
        cudaStreamSetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &value),
        "setting an L2 window");
  }

  cudaStream_t stream_;
  PinnedRange range_;
  bool is_open_ = false;
};

// One call of an op; a function per kind of shape.
class OpRun {
 public:
  OpRun(CudaStep& step, CudaOp& op, CudaContext& context)
      : step_(step), cuda_op_(op), op_(*op.op), context_(context), stream_(context.stream.get()) {}

  absl::Status operator()(const EmbeddingShape& s) {
    return LaunchEmbedding(s, step_.At<int32_t>(Tensor::kTokenIds),
                           cuda_op_.weights->As<__nv_bfloat16>(), Out(), stream_);
  }

  absl::Status operator()(const NormShape& s) {
    const auto* gain = cuda_op_.weights->As<__nv_bfloat16>();
    if (op_.in == op_.out) {
      return LaunchRmsNormParts(s, Out(), gain, stream_);
    }
    if (cuda_op_.reduces_first) {
      return context_.peers->AllReduceNorm(s, In(), step_.At<__nv_bfloat16>(op_.in2), gain, Out(),
                                           stream_);
    }
    return LaunchRmsNorm(s, In(), step_.At<__nv_bfloat16>(op_.in2), gain, Out(), stream_);
  }

  absl::Status operator()(const GemmShape& s) {
    if (cuda_op_.dense_pairs != nullptr) {
      return RunFp8Gemm(s);
    }
    return context_.cublas_lt->Run(cuda_op_.gemm, In() + s.in_offset, cuda_op_.weights->data(),
                                   s.bias ? cuda_op_.bias->data() : nullptr,
                                   step_.tensors.at(op_.out)->data(), stream_);
  }

  absl::Status operator()(const HeadGemmShape& /*s*/) {
    return context_.cublas_lt->Run(cuda_op_.gemm, In(), cuda_op_.weights->data(), nullptr,
                                   step_.tensors.at(op_.out)->data(), stream_);
  }

  absl::Status operator()(const RopeShape& s) {
    const auto* table = step_.rope_table.As<float2>();
    if (s.kind == AttentionKind::kGqa) {
      return LaunchRopeGqa(s, table, Out(), cuda_op_.kv(), stream_);
    }
    const int64_t latent_stride =
        static_cast<int64_t>(step_.tensors.at(op_.in2)->bytes() / sizeof(__nv_bfloat16)) /
        (s.num_sequences * s.query_tokens);
    return LaunchRopeMla(s, table, In(), step_.At<__nv_bfloat16>(op_.in2), latent_stride, Out(),
                         cuda_op_.kv(), stream_);
  }

  absl::Status operator()(const AttentionShape& s) {
    return LaunchAttention(s, context_.num_sms, In(), cuda_op_.kv(), Out(), step_.workspace->data(),
                           stream_);
  }

  absl::Status operator()(const RouterShape& s) {
    const CudaRouting& routing = routing_of();
    return LaunchRouter(s, step_.scores_of(cuda_op_.moe_index),
                        s.router.has_bias ? step_.router_bias.As<float>() : nullptr,
                        routing.expert_ids, routing.weights, step_.workspace->data(), stream_);
  }

  absl::Status operator()(const PermuteShape& s) {
    const CudaRouting& routing = step_.expert_routing(cuda_op_.moe_index);
    return LaunchPermute(s, routing.expert_ids, routing.weights, step_.pairs, stream_);
  }

  absl::Status operator()(const PadShape& s) {
    return LaunchPadRows(s, step_.pairs, In(), Out(), stream_);
  }

  absl::Status operator()(const ExpertGemmShape& s) {
    if (s.padded_rows > 0) {
      return context_.cublas_lt->Run(cuda_op_.gemm, In(), cuda_op_.weights->data(), nullptr, Out(),
                                     stream_);
    }
    const void* in = In();
    if (s.activations == ActivationFormat::kFp8) {
      const int32_t* const num_pairs = s.gather_tokens ? nullptr : step_.pairs.num_pairs();
      LASTFLOP_RETURN_IF_ERROR(LaunchQuantizeRows(RowsIn(s), s.in_features, num_pairs, In(),
                                                  step_.workspace->data(), stream_));
      in = step_.workspace->data();
    }
    StreamWindow window(stream_, cuda_op_.pinned);
    LASTFLOP_RETURN_IF_ERROR(window.Open());
    LASTFLOP_RETURN_IF_ERROR(
        LaunchGroupedGemm(s, step_.pairs, cuda_op_.expert_panels(), in, Out(),
                          {.row_order = RowOrderOf(op_.weight),
                           // Between permute or dequantization and down there is always gate_up.
                           .early_weights = !s.gather_tokens,
                           .cache_hint = step_.plan.moe.cache_hint,
                           .tensor_scale = cuda_op_.tensor_scale},
                          stream_));
    return window.Close();
  }

  absl::Status operator()(const ActivationShape& s) {
    return LaunchSwiglu(s, s.rows_are_pairs ? &step_.pairs : nullptr, In(), Out(), stream_);
  }

  absl::Status operator()(const CombineShape& s) {
    return LaunchMoeCombine(s, step_.pairs, In(), Shared(s.add_shared), Out(), stream_);
  }

  absl::Status operator()(const FusedMoeShape& s) {
    if (IsPluginOp(op_)) {
      return RunCudaPlugin(step_, cuda_op_, stream_);
    }
    const CudaRouting& routing = step_.expert_routing(cuda_op_.moe_index);
    return LaunchFusedMoeCuda(s,
                              {.gate_up = cuda_op_.expert_panels(),
                               .down = cuda_op_.expert_down_panels(),
                               .in = In(),
                               .shared = Shared(s.add_shared),
                               .expert_ids = routing.expert_ids,
                               .expert_weights = routing.weights,
                               .out = Out(),
                               .workspace = step_.fused_workspace.data(),
                               .first_expert = step_.layout.first_expert},
                              {}, stream_);
  }

  absl::Status operator()(const DequantShape& s) {
    return LaunchDequant(s, step_.pairs, cuda_op_.weights->data(), cuda_op_.copies->data(),
                         stream_);
  }

  absl::Status operator()(const AllReduceShape& s) {
    return step_.all_reduce == AllReduceAlgorithm::kNccl
               ? step_.nccl->AllReduce(Out(), s.elements, stream_)
               : context_.peers->AllReduce(Out(), s.elements, step_.all_reduce, stream_);
  }

  absl::Status operator()(const AllToAllShape& s) {
    return s.combine ? CombineTokens(s) : DispatchTokens(s);
  }
  absl::Status operator()(const StageTransferShape& /*s*/) {
    return absl::UnimplementedError("parallel.pipeline: the CUDA backend has no hand-over");
  }

  absl::Status operator()(SampleShape s) {
    const auto* logits = step_.At<float>(op_.in);
    auto* token_ids = step_.At<int32_t>(op_.out);
    if (s.ranks == 1) {
      return LaunchSample(s, logits, token_ids, step_.workspace->data(), stream_);
    }
    auto* own = step_.candidates.As<Candidate>();
    if (step_.shard) {
      // The candidates of the other ranks would be as many; the choice is made over the own ones.
      LASTFLOP_RETURN_IF_ERROR(
          LaunchBestCandidates(s, logits, own, step_.workspace->data(), stream_));
      s.ranks = 1;
      return LaunchChooseTokens(s, own, token_ids, stream_);
    }
    Candidate* const all = own + s.num_tokens;
    LASTFLOP_RETURN_IF_ERROR(
        LaunchBestCandidates(s, logits, own, step_.workspace->data(), stream_));
    LASTFLOP_RETURN_IF_ERROR(context_.nccl->AllGather(
        own, all, s.num_tokens * static_cast<int64_t>(sizeof(Candidate)), stream_));
    return LaunchChooseTokens(s, all, token_ids, stream_);
  }

 private:
  int rank() const { return static_cast<int>(step_.layout.replica); }

  absl::Status DispatchTokens(const AllToAllShape& s) {
    const CudaRouting& own = routing_of();
    const DispatchTensors tensors{.rows = In(),
                                  .expert_ids = own.expert_ids,
                                  .weights = own.weights,
                                  .received = Out(),
                                  .received_ids = step_.received.expert_ids,
                                  .received_weights = step_.received.weights};
    return s.algorithm == AllToAllAlgorithm::kNccl
               ? NcclDispatch(*step_.nccl, rank(), step_.tokens, tensors, stream_)
               : context_.peers->Dispatch(step_.tokens, tensors, stream_);
  }

  absl::Status CombineTokens(const AllToAllShape& s) {
    const CombineTensors tensors{.partial = In(),
                                 .received_ids = step_.received.expert_ids,
                                 .expert_ids = routing_of().expert_ids,
                                 .shared = Shared(op_.in2 != Tensor::kNone),
                                 .out = Out()};
    return s.algorithm == AllToAllAlgorithm::kNccl
               ? NcclCombine(*step_.nccl, rank(), step_.tokens, tensors,
                             step_.workspace->As<__nv_bfloat16>(), stream_)
               : context_.peers->Combine(step_.tokens, tensors, stream_);
  }

  absl::Status RunFp8Gemm(const GemmShape& s) {
    // Weights and pairs are older than the step.
    LASTFLOP_RETURN_IF_ERROR(LaunchGroupedGemm(
        OneExpertOf(s), *cuda_op_.dense_pairs, cuda_op_.weights->data(), In() + s.in_offset, Out(),
        {.early_weights = true, .in_stride = s.in_stride}, stream_));
    return s.bias ? LaunchAddBias(s.num_tokens, s.out_features, cuda_op_.bias->As<__nv_bfloat16>(),
                                  Out(), stream_)
                  : absl::OkStatus();
  }
  const CudaRouting& routing_of() const {
    return step_.routing[static_cast<size_t>(cuda_op_.moe_index)];
  }
  Bf16Pointer In() { return step_.At<__nv_bfloat16>(op_.in); }
  Bf16Pointer Out() { return step_.At<__nv_bfloat16>(op_.out); }
  Bf16Pointer Shared(bool add_shared) {
    return add_shared ? step_.At<__nv_bfloat16>(Tensor::kSharedOut) : nullptr;
  }

  CudaStep& step_;
  CudaOp& cuda_op_;
  const Op& op_;
  CudaContext& context_;
  cudaStream_t stream_;
};

}  // namespace

bool HasDevicePairs(const CudaStep& step) {
  return step.plan.moe.kernel != MoeKernel::kFused || step.plan.moe.dequant == Dequant::kSeparate;
}

bool RunsOnDevice(const CudaStep& step, const Op& op) {
  if (std::holds_alternative<AllReduceShape>(op.shape)) {
    return !step.shard && !step.plan.collectives.fuse_norm;
  }
  if (std::holds_alternative<AllToAllShape>(op.shape)) {
    return !step.shard;
  }
  if (std::holds_alternative<RouterShape>(op.shape)) {
    return !step.step.experts_only;  // A draw has made the routing.
  }
  return !std::holds_alternative<PermuteShape>(op.shape) || HasDevicePairs(step);
}

absl::Status RunCudaOp(CudaStep& step, CudaOp& op, CudaContext& context) {
  if (!RunsOnDevice(step, *op.op)) {
    return absl::OkStatus();
  }
  const absl::Status status = std::visit(OpRun(step, op, context), op.op->shape);
  if (status.ok()) {
    return status;
  }
  return absl::Status(status.code(), absl::StrCat(op.op->name, " in layer ", op.op->layer, ": ",
                                                  std::string(status.message())));
}

bool UsesPeerMemory(const CudaStep& step) {
  if (step.is_idle() || step.shard) {
    return false;
  }
  return step.layout.data_attention
             ? step.plan.collectives.all_to_all == AllToAllAlgorithm::kP2p
             : step.plan.parallel.tensor > 1 && step.all_reduce != AllReduceAlgorithm::kNccl;
}

absl::Status FuseNorms(CudaStep& step, const CudaPeerCommunicator& peers) {
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (!std::holds_alternative<AllReduceShape>(step.ops[i].op->shape)) {
      continue;
    }
    const Op* next = i + 1 < step.ops.size() ? step.ops[i + 1].op : nullptr;
    const auto* norm = next == nullptr ? nullptr : std::get_if<NormShape>(&next->shape);
    if (norm == nullptr || next->in == next->out || next->in != step.ops[i].op->out) {
      return absl::UnimplementedError(
          absl::StrCat("collectives.fuse_norm=true: ", step.ops[i].op->name,
                       " has no norm of its output after it"));
    }
    LASTFLOP_RETURN_IF_ERROR(peers.CheckNorm(*norm));
    step.ops[i + 1].reduces_first = true;
  }
  return absl::OkStatus();
}

}  // namespace lastflop
