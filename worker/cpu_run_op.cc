#include "worker/cpu_run_op.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "common/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/dequant/dequant.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fused_moe/fused_moe.h"
#include "kernels/gemm/gemm.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/head_gemm/head_gemm.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/sample/sample.h"
#include "kernels/swiglu/swiglu.h"
#include "worker/cpu_plugin.h"
#include "worker/cpu_reference_moe.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

std::span<uint16_t> Bits(std::span<Bf16> values) {
  return {reinterpret_cast<uint16_t*>(values.data()), values.size()};
}

// One call of an op; a function per kind of shape.
class OpRun {
 public:
  OpRun(CpuStep& step, CpuOp& op) : step_(step), cpu_op_(op), op_(*op.op) {}

  absl::Status operator()(const EmbeddingShape& s) {
    Embedding(s, step_.token_ids, cpu_op_.weights->rows(), Out<Bf16>(s.num_tokens * s.hidden_size),
              pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const NormShape& s) {
    const int64_t count = s.rows * s.stride;
    if (op_.in == op_.out) {
      RmsNormParts(s, Out<Bf16>(count), cpu_op_.weights->rows(), pool());
    } else {
      RmsNorm(s, In<Bf16>(count), step_.As<Bf16>(op_.in2, count), cpu_op_.weights->rows(),
              Out<Bf16>(count), pool());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const GemmShape& s) {
    const int64_t stride = s.in_stride > 0 ? s.in_stride : s.in_features;
    const auto in = In<Bf16>(s.in_offset + (s.num_tokens - 1) * stride + s.in_features);
    const auto bias = s.bias ? cpu_op_.bias->rows() : std::span<const Bf16>{};
    const int64_t out_size = s.num_tokens * s.out_features;
    if (s.fp32_out) {
      Gemm(s, cpu_op_.weights->packed(), in, bias, Out<float>(out_size), step_.work(), pool());
    } else {
      Gemm(s, cpu_op_.weights->packed(), in, bias, Out<Bf16>(out_size), step_.work(), pool());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const HeadGemmShape& s) {
    const int64_t heads = s.num_tokens * s.num_heads;
    HeadGemm(s, cpu_op_.weights->packed(), In<Bf16>(heads * s.in_stride),
             Out<Bf16>(heads * s.out_stride), pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const RopeShape& s) {
    const int64_t tokens = s.num_sequences * s.query_tokens;
    if (s.kind == AttentionKind::kGqa) {
      RopeGqa(s, *step_.rope, Out<Bf16>(tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim),
              cpu_op_.cache->view(), pool());
      return absl::OkStatus();
    }
    auto& latents = step_.tensors.at(op_.in2);
    RopeMla(s, *step_.rope,
            In<Bf16>(tokens * s.num_heads * (s.qk_nope_head_dim + s.qk_rope_head_dim)),
            latents.As<Bf16>(latents.bytes() / sizeof(Bf16)),
            Out<Bf16>(tokens * s.num_heads * (s.kv_lora_rank + s.qk_rope_head_dim)),
            cpu_op_.cache->view(), pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const AttentionShape& s) {
    const AttentionWidths widths = WidthsOf(s);
    const int64_t tokens = s.num_sequences * s.query_tokens;
    Attention(s, In<Bf16>(tokens * widths.query_stride), cpu_op_.cache->view(),
              Out<Bf16>(tokens * s.num_heads * widths.value), step_.work(), pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const RouterShape& s) {
    const auto layer = static_cast<size_t>(cpu_op_.moe_index);
    CpuRouting& routing = step_.routing[layer];
    Router(s, step_.drawn_scores[layer], step_.router_bias, routing.expert_ids, routing.weights,
           pool());
    return absl::OkStatus();
  }

  absl::Status operator()(PermuteShape s) {
    const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
    s.num_tokens = step_.expert_tokens();
    const auto slots = static_cast<size_t>(s.num_tokens * s.top_k);
    if (step_.layout.data_attention) {
      Permute(s, std::span(step_.received_ids).first(slots),
              std::span(step_.received_weights).first(slots), step_.pair_list());
    } else {
      Permute(s, routing.expert_ids, routing.weights, step_.pair_list());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const PadShape& /*s*/) {
    return absl::UnimplementedError("moe.kernel=cublaslt: the CPU backend has no CUDA library");
  }

  absl::Status operator()(ExpertGemmShape s) {
    const PairList pairs = step_.pair_list();
    const int64_t num_pairs = pairs.num_pairs();
    if (num_pairs == 0) {
      return absl::OkStatus();  // No token was routed here.
    }
    s.num_tokens = step_.expert_tokens();
    const auto in = In<Bf16>((s.gather_tokens ? s.num_tokens : num_pairs) * s.in_features);
    const auto out = Out<Bf16>(num_pairs * s.out_columns());
    if (is_reference()) {
      ReferenceExpertGemm(s, pairs, cpu_op_.expert_weights(), in, out);
    } else {
      GroupedGemm(s, pairs, cpu_op_.expert_weights(), in, out, step_.work(), pool());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const ActivationShape& s) {
    if (!s.rows_are_pairs) {
      Swiglu(s, nullptr, In<Bf16>(2 * s.rows * s.intermediate_size),
             Out<Bf16>(s.rows * s.intermediate_size), pool());
      return absl::OkStatus();
    }
    const PairList pairs = step_.pair_list();
    const int64_t rows = pairs.num_pairs();
    const auto in = In<Bf16>(2 * rows * s.intermediate_size);
    const auto out = Out<Bf16>(rows * s.intermediate_size);
    if (rows == 0) {
      return absl::OkStatus();
    }
    if (is_reference()) {
      ReferenceSwiglu(s, pairs, in, out);
    } else {
      Swiglu(s, &pairs, in, out, pool());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(CombineShape s) {
    s.num_tokens = step_.expert_tokens();
    if (s.num_tokens == 0) {
      return absl::OkStatus();
    }
    const PairList pairs = step_.pair_list();
    const auto in = In<Bf16>(pairs.num_pairs() * s.hidden_size);
    const auto out = Out<Bf16>(s.num_tokens * s.hidden_size);
    const auto shared = Shared(s.add_shared, s.num_tokens * s.hidden_size);
    if (is_reference()) {
      ReferenceCombine(s, pairs, in, shared, out);
    } else {
      MoeCombine(s, pairs, in, shared, out, pool());
    }
    return absl::OkStatus();
  }

  absl::Status operator()(FusedMoeShape s) {
    s.num_tokens = step_.expert_tokens();
    if (s.num_tokens == 0) {
      return absl::OkStatus();
    }
    if (IsPluginOp(op_)) {
      return RunCpuPlugin(step_, cpu_op_, s);
    }
    const int64_t count = s.num_tokens * s.hidden_size;
    FusedMoe(s, step_.pair_list(), cpu_op_.expert_weights(), cpu_op_.expert_down_weights(),
             In<Bf16>(count), Shared(s.add_shared, count), Out<Bf16>(count), step_.work(), pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const DequantShape& s) {
    Dequant(s, step_.pair_list(), cpu_op_.weights->packed(), *cpu_op_.dequantized,
            cpu_op_.dequantized_data->data(), pool());
    return absl::OkStatus();
  }

  absl::Status operator()(const AllReduceShape& s) {
    LASTFLOP_ASSIGN_OR_RETURN(
        const CollectiveTiming timing,
        step_.tensor_ranks->AllReduce(Bits(Out<Bf16>(s.elements)), s.algorithm, s.payload));
    step_.wait_us += timing.wait_us;
    return absl::OkStatus();
  }

  absl::Status operator()(const AllToAllShape& s) {
    return s.combine ? CombineTokens(s) : DispatchTokens(s);
  }

  absl::Status operator()(const StageTransferShape& s) {
    const StageMessage message = MessageOf(step_, op_, s);
    LASTFLOP_ASSIGN_OR_RETURN(const CollectiveTiming timing,
                              s.receive ? step_.stage_link->Receive(message.first, message.second)
                                        : step_.stage_link->Send(message.first, message.second));
    step_.wait_us += timing.wait_us;
    step_.stage_wait_us += timing.wait_us;
    return absl::OkStatus();
  }

  absl::Status operator()(const SampleShape& s) {
    std::vector<Candidate> own(static_cast<size_t>(s.num_tokens));
    BestCandidates(s, In<float>(s.num_tokens * s.vocab_rows), own, pool());
    if (s.ranks == 1) {
      ChooseTokens(s, own, step_.sampled);
      return absl::OkStatus();
    }
    std::vector<Candidate> all(own.size() * static_cast<size_t>(s.ranks));
    LASTFLOP_ASSIGN_OR_RETURN(
        const CollectiveTiming timing,
        step_.tensor_ranks->AllGather(std::as_bytes(std::span(std::as_const(own))),
                                      std::as_writable_bytes(std::span(all))));
    step_.wait_us += timing.wait_us;
    ChooseTokens(s, all, step_.sampled);
    return absl::OkStatus();
  }

 private:
  absl::Status DispatchTokens(const AllToAllShape& s) {
    const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
    auto& rows = step_.tensors.at(op_.out);
    LASTFLOP_ASSIGN_OR_RETURN(
        const CollectiveTiming timing,
        step_.expert_ranks->Dispatch(s,
                                     {.rows = Bits(In<Bf16>(s.num_tokens * s.hidden_size)),
                                      .expert_ids = routing.expert_ids,
                                      .weights = routing.weights},
                                     {.rows = Bits(rows.As<Bf16>(rows.bytes() / sizeof(Bf16))),
                                      .expert_ids = step_.received_ids,
                                      .weights = step_.received_weights},
                                     &step_.num_received));
    step_.wait_us += timing.wait_us;
    return absl::OkStatus();
  }

  absl::Status CombineTokens(const AllToAllShape& s) {
    const int64_t count = s.num_tokens * s.hidden_size;
    const auto shared =
        op_.in2 == Tensor::kNone ? std::span<Bf16>{} : step_.As<Bf16>(op_.in2, count);
    LASTFLOP_ASSIGN_OR_RETURN(
        const CollectiveTiming timing,
        step_.expert_ranks->Combine(Bits(In<Bf16>(step_.num_received * s.hidden_size)),
                                    Bits(shared), Bits(Out<Bf16>(count))));
    step_.wait_us += timing.wait_us;
    return absl::OkStatus();
  }

  std::span<const Bf16> Shared(bool add_shared, int64_t count) {
    return add_shared ? step_.As<Bf16>(Tensor::kSharedOut, count) : std::span<Bf16>{};
  }

  template <typename T>
  std::span<T> In(int64_t count) {
    return step_.As<T>(op_.in, count);
  }
  template <typename T>
  std::span<T> Out(int64_t count) {
    return step_.As<T>(op_.out, count);
  }
  ThreadPool& pool() { return *step_.pool; }
  bool is_reference() const { return step_.plan.moe.kernel == MoeKernel::kReference; }

  CpuStep& step_;
  CpuOp& cpu_op_;
  const Op& op_;
};

}  // namespace

absl::Status RunCpuOp(CpuStep& step, CpuOp& op) {
  return std::visit(OpRun(step, op), op.op->shape);
}

}  // namespace lastflop
