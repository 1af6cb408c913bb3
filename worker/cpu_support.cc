#include "worker/cpu_support.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "kernels/cpu/packed_weights.h"
#include "step/layout.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view value,
                         absl::string_view reason) {
  return absl::UnimplementedError(absl::StrCat(field, "=", value, ": the CPU backend ", reason));
}

absl::Status CheckLaunch(const Plan& plan) {
  if (plan.launch.graph != GraphMode::kNone) {
    return Unsupported("launch.graph", ToWord(plan.launch.graph),
                       "calls its kernels, so there is no graph to capture");
  }
  if (plan.launch.dependent) {
    return Unsupported("launch.dependent", "true",
                       "has no kernel launches that could overlap their prologues");
  }
  if (plan.launch.steps > 1) {
    return Unsupported("launch.steps", absl::StrCat(plan.launch.steps),
                       "returns to the host after every step as it is");
  }
  if (plan.overlap != Overlap::kNone) {
    return Unsupported("overlap", ToWord(plan.overlap),
                       "runs one op at a time on all cores of a rank");
  }
  if (!plan.engine.empty()) {
    return Unsupported("engine.command", plan.engine, "runs lastflop's own step only");
  }
  return absl::OkStatus();
}

absl::Status CheckParallel(const Plan& plan) {
  if (plan.parallel.pipeline > 1 && IsDataAttention(plan)) {
    return Unsupported("parallel.pipeline", absl::StrCat(plan.parallel.pipeline),
                       "does not exchange tokens (data attention) inside the stages of a pipeline");
  }
  return absl::OkStatus();
}

absl::Status CheckMoe(const Plan& plan) {
  const Plan::Moe& moe = plan.moe;
  if (moe.activations != ActivationFormat::kBf16) {
    return Unsupported("moe.activations", ToWord(moe.activations),
                       "multiplies bf16 activations only");
  }
  if (moe.kernel == MoeKernel::kCutlass || moe.kernel == MoeKernel::kCublaslt) {
    return Unsupported("moe.kernel", ToWord(moe.kernel), "has no CUDA library to call");
  }
  if (moe.kernel == MoeKernel::kPlugin) {
    LASTFLOP_RETURN_IF_ERROR(CheckPluginFields(moe));
  }
  if (moe.kernel == MoeKernel::kFused && moe.group_m > 0) {
    return Unsupported("moe.group_m", absl::StrCat(moe.group_m),
                       "has no group_m in its fused kernel");
  }
  if (moe.kernel == MoeKernel::kReference && moe.tile_order != TileOrder::kRowMajor) {
    return Unsupported("moe.tile_order", ToWord(moe.tile_order),
                       "has no tiles in its reference kernel");
  }
  if (moe.kernel == MoeKernel::kReference && moe.group_m > 0) {
    return Unsupported("moe.group_m", absl::StrCat(moe.group_m),
                       "has no tiles in its reference kernel");
  }
  if (moe.l2_pin.has_value()) {
    return Unsupported("moe.l2_pin", absl::StrCat("share ", moe.l2_pin->share),
                       "cannot pin memory in a CPU's cache");
  }
  if (moe.cache_hint != CacheHint::kNone) {
    return Unsupported("moe.cache_hint", ToWord(moe.cache_hint),
                       "has no loads with an eviction policy");
  }
  if (moe.redundant_experts > 0) {
    return Unsupported("moe.redundant_experts", absl::StrCat(moe.redundant_experts),
                       "keeps one copy of every expert");
  }
  return absl::OkStatus();
}

absl::Status CheckCollectives(const Plan& plan) {
  const Plan::Collectives& collectives = plan.collectives;
  if (collectives.all_reduce == AllReduceAlgorithm::kNccl) {
    return Unsupported("collectives.all_reduce", "nccl",
                       "has no NCCL; it runs one_shot, two_shot and ring over shared memory");
  }
  if (!(collectives.nccl == NcclTuning{})) {
    return Unsupported("collectives.nccl",
                       absl::StrCat(collectives.nccl.algorithm, ",", collectives.nccl.protocol, ",",
                                    collectives.nccl.channels),
                       "has no NCCL to tune");
  }
  if (collectives.fuse_norm) {
    return Unsupported("collectives.fuse_norm", "true",
                       "has no all-reduce with a norm in the same kernel");
  }
  if (collectives.fuse_finalize) {
    return Unsupported("collectives.fuse_finalize", "true",
                       "has no combine in the same kernel as the all-reduce");
  }
  if (collectives.payload != ActivationFormat::kBf16) {
    return Unsupported("collectives.payload", ToWord(collectives.payload), "sends bf16 only");
  }
  if (collectives.all_to_all == AllToAllAlgorithm::kNccl) {
    return Unsupported("collectives.all_to_all", "nccl", "has no NCCL; it runs p2p");
  }
  return absl::OkStatus();
}

absl::Status CheckFormat(absl::string_view what, const WeightStorage& storage) {
  const absl::Status status = CheckCpuWeightFormat(storage);
  if (status.ok()) {
    return status;
  }
  return absl::UnimplementedError(
      absl::StrCat(what, "=", ToWord(storage.format), ": ", status.message()));
}

absl::Status CheckFormats(const Model& model, const Plan& plan) {
  LASTFLOP_RETURN_IF_ERROR(CheckFormat("moe.weights", ExpertStorage(model, plan)));
  LASTFLOP_RETURN_IF_ERROR(CheckFormat("the model's attention weights", model.attention_weights));
  LASTFLOP_RETURN_IF_ERROR(CheckFormat("the model's LM head", model.lm_head));
  if (model.shared_intermediate_size > 0) {
    LASTFLOP_RETURN_IF_ERROR(CheckFormat("the model's shared experts", model.shared));
  }
  if (model.num_dense_layers() > 0) {
    LASTFLOP_RETURN_IF_ERROR(CheckFormat("the model's dense layers", model.dense));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCpuSupport(const Model& model, const Plan& plan) {
  LASTFLOP_RETURN_IF_ERROR(CheckLaunch(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckParallel(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckMoe(plan));
  LASTFLOP_RETURN_IF_ERROR(CheckCollectives(plan));
  return CheckFormats(model, plan);
}

}  // namespace lastflop
