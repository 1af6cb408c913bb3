#include "worker/cuda_support.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collectives/all_reduce_algorithm.h"
#include "common/status_macros.h"
#include "kernels/cuda/panel.h"
#include "step/layout.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view value,
                         absl::string_view reason) {
  return absl::UnimplementedError(absl::StrCat(field, "=", value, ": the CUDA backend ", reason));
}

absl::Status CheckLaunch(const Plan& plan) {
  if (plan.launch.dependent) {
    return Unsupported(
        "launch.dependent", "true",
        "starts its own kernels before the one before them has ended always, and cuBLASLt's never");
  }
  if (plan.launch.steps > 1) {
    return Unsupported("launch.steps", absl::StrCat(plan.launch.steps), "launches step by step");
  }
  if (plan.overlap != Overlap::kNone) {
    return Unsupported("overlap", ToWord(plan.overlap), "runs a step on one stream");
  }
  if (!plan.engine.empty()) {
    return Unsupported("engine.command", plan.engine, "runs lastflop's own step only");
  }
  return absl::OkStatus();
}

absl::Status CheckParallel(const Plan& plan) {
  if (plan.parallel.pipeline > 1) {
    return Unsupported("parallel.pipeline", absl::StrCat(plan.parallel.pipeline),
                       "has no hand-over between stages");
  }
  if (plan.parallel.micro_batches > 1) {
    return Unsupported("parallel.micro_batches", absl::StrCat(plan.parallel.micro_batches),
                       "runs a batch in one piece");
  }
  if (plan.parallel.data > 1 && !IsDataAttention(plan)) {
    return Unsupported("parallel.data", absl::StrCat(plan.parallel.data),
                       "runs one replica a gang");
  }
  return absl::OkStatus();
}

// Tiles, loads and windows are the library's own.
absl::Status CheckCublasltFields(const Plan::Moe& moe) {
  constexpr absl::string_view kReason = "has no such choice in cuBLASLt's products";
  if (moe.tile_order != TileOrder::kRowMajor) {
    return Unsupported("moe.tile_order", ToWord(moe.tile_order), kReason);
  }
  if (moe.group_m > 0) {
    return Unsupported("moe.group_m", absl::StrCat(moe.group_m), kReason);
  }
  if (moe.cache_hint != CacheHint::kNone) {
    return Unsupported("moe.cache_hint", ToWord(moe.cache_hint), kReason);
  }
  if (moe.l2_pin.has_value()) {
    return Unsupported("moe.l2_pin", absl::StrCat("share ", moe.l2_pin->share),
                       "opens L2 windows on grouped kernels, one a product");
  }
  return absl::OkStatus();
}

absl::Status CheckMoe(const Plan& plan) {
  const Plan::Moe& moe = plan.moe;
  if (moe.kernel == MoeKernel::kPlugin) {
    LASTFLOP_RETURN_IF_ERROR(CheckPluginFields(moe));
  }
  const bool has_fp8_rows = moe.activations == ActivationFormat::kFp8 &&
                            moe.kernel == MoeKernel::kGrouped && moe.dequant == Dequant::kFused;
  if (moe.activations != ActivationFormat::kBf16 && !has_fp8_rows) {
    return Unsupported("moe.activations", ToWord(moe.activations),
                       "multiplies bf16 activations, and fp8 ones in its grouped kernel");
  }
  if (moe.kernel != MoeKernel::kGrouped && moe.kernel != MoeKernel::kFused &&
      moe.kernel != MoeKernel::kCublaslt && moe.kernel != MoeKernel::kPlugin) {
    return Unsupported("moe.kernel", ToWord(moe.kernel),
                       "has grouped and fused kernels, cublaslt and plugins");
  }
  if (moe.kernel == MoeKernel::kFused && moe.group_m > 0) {
    return Unsupported("moe.group_m", absl::StrCat(moe.group_m),
                       "has no group_m in its fused kernel");
  }
  if (moe.kernel == MoeKernel::kFused && moe.cache_hint != CacheHint::kNone) {
    return Unsupported("moe.cache_hint", ToWord(moe.cache_hint), "has no hint in its fused kernel");
  }
  if (moe.kernel == MoeKernel::kFused && moe.l2_pin.has_value()) {
    return Unsupported("moe.l2_pin", absl::StrCat("share ", moe.l2_pin->share),
                       "opens L2 windows on grouped kernels, one a product");
  }
  if (moe.kernel == MoeKernel::kCublaslt) {
    LASTFLOP_RETURN_IF_ERROR(CheckCublasltFields(moe));
  }
  if (moe.redundant_experts > 0) {
    return Unsupported("moe.redundant_experts", absl::StrCat(moe.redundant_experts),
                       "keeps one copy of every expert");
  }
  return absl::OkStatus();
}

absl::Status CheckCollectives(const Plan& plan) {
  const Plan::Collectives& collectives = plan.collectives;
  // Data attention exchanges tokens, and has nothing to all-reduce.
  const bool reduces = plan.parallel.tensor > 1 && !IsDataAttention(plan);
  if (reduces) {
    LASTFLOP_RETURN_IF_ERROR(
        ResolveCudaAllReduce(collectives.all_reduce, 0, plan.parallel.tensor, true).status());
  }
  if (!(collectives.nccl == NcclTuning{}) &&
      (collectives.all_reduce != AllReduceAlgorithm::kNccl || IsDataAttention(plan))) {
    return Unsupported("collectives.nccl",
                       absl::StrCat(collectives.nccl.algorithm, ",", collectives.nccl.protocol, ",",
                                    collectives.nccl.channels),
                       "tunes NCCL's all-reduces, where collectives.all_reduce is nccl and there "
                       "are some");
  }
  if (collectives.fuse_norm && !reduces) {
    return Unsupported("collectives.fuse_norm", "true",
                       IsDataAttention(plan) ? "has no all-reduce to fuse under data attention"
                                             : "has no all-reduce to fuse at parallel.tensor=1");
  }
  if (collectives.all_to_all == AllToAllAlgorithm::kNccl && !IsDataAttention(plan)) {
    return Unsupported("collectives.all_to_all", "nccl",
                       "exchanges tokens under parallel.attention=data only");
  }
  if (collectives.fuse_norm && collectives.all_reduce != AllReduceAlgorithm::kOneShot &&
      collectives.all_reduce != AllReduceAlgorithm::kAuto) {
    return Unsupported("collectives.fuse_norm", "true",
                       "fuses the norm with one_shot (or auto) only");
  }
  if (collectives.fuse_finalize) {
    return Unsupported("collectives.fuse_finalize", "true",
                       "has no combine in the same kernel as the all-reduce");
  }
  if (collectives.payload != ActivationFormat::kBf16) {
    return Unsupported("collectives.payload", ToWord(collectives.payload), "sends bf16 only");
  }
  return absl::OkStatus();
}

absl::Status CheckFormats(const Model& model, const Plan& plan) {
  const absl::StatusOr<WeightFormat> experts = PanelFormatOf(ExpertStorage(model, plan));
  if (!experts.ok()) {
    return absl::UnimplementedError(absl::StrCat("moe.weights=", experts.status().message()));
  }
  if (plan.moe.activations == ActivationFormat::kFp8 && *experts != WeightFormat::kFp8Block) {
    return Unsupported(
        "moe.activations", "fp8",
        absl::StrCat("multiplies fp8 activations with fp8_block weights, not ", ToWord(*experts)));
  }
  const auto check_dense = [](absl::string_view what, const WeightStorage& storage) {
    const absl::StatusOr<WeightFormat> format = PanelFormatOf(storage);
    return format.ok() && (*format == WeightFormat::kBf16 || *format == WeightFormat::kFp8Block)
               ? absl::OkStatus()
               : Unsupported(
                     what, ToWord(storage.format),
                     "multiplies dense weights in bf16 and in fp8 blocks of 128 x 128 only");
  };
  LASTFLOP_RETURN_IF_ERROR(check_dense("the model's attention weights", model.attention_weights));
  if (model.lm_head.format != WeightFormat::kBf16) {
    return Unsupported("the model's LM head", ToWord(model.lm_head.format),
                       "multiplies the LM head in bf16 only");
  }
  if (model.shared_intermediate_size > 0) {
    LASTFLOP_RETURN_IF_ERROR(check_dense("the model's shared experts", model.shared));
  }
  if (model.num_dense_layers() > 0) {
    LASTFLOP_RETURN_IF_ERROR(check_dense("the model's dense layers", model.dense));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCudaSupport(const Model& model, const Plan& plan) {
  LASTFLOP_RETURN_IF_ERROR(CheckLaunch(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckParallel(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckMoe(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckCollectives(plan));
  return CheckFormats(model, plan);
}

}  // namespace lastflop
