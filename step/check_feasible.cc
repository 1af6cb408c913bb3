#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "step/padded_experts.h"

namespace lastflop {
namespace {

absl::Status Refusal(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status CheckDegrees(const Model& model, const Plan& plan) {
  const auto& p = plan.parallel;
  for (const auto& [name, value] : {std::pair{"parallel.tensor", p.tensor},
                                    {"parallel.expert", p.expert},
                                    {"parallel.data", p.data},
                                    {"parallel.pipeline", p.pipeline},
                                    {"parallel.micro_batches", p.micro_batches}}) {
    if (value < 1) {
      return Refusal(absl::StrCat(name, "=", value, ": a degree is at least 1"));
    }
  }
  if (p.pipeline > model.num_layers) {
    return Refusal(absl::StrCat("parallel.pipeline=", p.pipeline,
                                " > num_layers=", model.num_layers, ": every stage needs a layer"));
  }
  if (p.micro_batches > 1 && p.pipeline == 1) {
    return Refusal(absl::StrCat("parallel.micro_batches=", p.micro_batches,
                                " needs parallel.pipeline > 1: one stage has nothing to fill"));
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const Model& model, const Plan& plan) {
  const auto& p = plan.parallel;
  const int64_t num_experts = model.num_experts + plan.moe.redundant_experts;
  if (p.expert > num_experts) {
    return Refusal(absl::StrCat("parallel.expert=", p.expert, " > num_experts=", num_experts,
                                ": a rank would hold no expert"));
  }
  if (num_experts % p.expert != 0) {
    return Refusal(absl::StrCat("num_experts=", num_experts, " over parallel.expert=", p.expert,
                                ": ", num_experts, " mod ", p.expert, " = ",
                                num_experts % p.expert));
  }
  if (plan.moe.redundant_experts > 0 && p.expert == 1) {
    return Refusal(
        "moe.redundant_experts needs parallel.expert > 1: with one group there is "
        "no load to balance");
  }
  if (plan.moe.opportunistic_keep > model.top_k) {
    return Refusal(absl::StrCat("moe.expert_activation keep=", plan.moe.opportunistic_keep,
                                " > top_k=", model.top_k));
  }
  if (plan.moe.dequant == Dequant::kSeparate &&
      ExpertStorage(model, plan).format == WeightFormat::kBf16) {
    return Refusal("moe.dequant=separate with moe.weights=bf16: there is nothing to dequantize");
  }
  return absl::OkStatus();
}

absl::Status CheckExpertRanks(const Plan& plan) {
  const auto& p = plan.parallel;
  const int64_t ranks = p.tensor * p.data;
  if (p.expert > 1 && p.expert != ranks && p.tensor % p.expert != 0) {
    return Refusal(absl::StrCat("parallel.expert=", p.expert, " must be tensor*data = ", p.tensor,
                                "*", p.data, " = ", ranks, ", or divide parallel.tensor: ",
                                p.tensor, " mod ", p.expert, " = ", p.tensor % p.expert));
  }
  if (p.attention == AttentionParallel::kData && ranks > 1 && p.expert != ranks &&
      !(p.tensor == 1 && p.expert == 1)) {
    return Refusal(absl::StrCat(
        "parallel.attention=data spreads sequences over tensor*data = ", ranks,
        " ranks and needs parallel.expert=", ranks, " for the experts, not ", p.expert));
  }
  return absl::OkStatus();
}

absl::Status CheckDivides(const char* what, int64_t size, int64_t tensor) {
  if (size % tensor != 0) {
    return Refusal(absl::StrCat(what, "=", size, " over parallel.tensor=", tensor, ": ", size,
                                " mod ", tensor, " = ", size % tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const Model& model, int64_t tensor) {
  const AttentionDims& attention = model.attention;
  LASTFLOP_RETURN_IF_ERROR(CheckDivides("num_heads", attention.num_heads, tensor));
  if (attention.kind != AttentionKind::kGqa) {
    return absl::OkStatus();
  }
  const int64_t kv_heads = attention.num_kv_heads;
  if (kv_heads >= tensor) {
    return CheckDivides("num_kv_heads", kv_heads, tensor);
  }
  if (tensor % kv_heads != 0) {
    return Refusal(absl::StrCat("num_kv_heads=", kv_heads, " replicated over parallel.tensor=",
                                tensor, ": ", tensor, " mod ", kv_heads, " = ", tensor % kv_heads));
  }
  return absl::OkStatus();
}

// One side of a weight matrix that a rank holds a slice of, in steps of a quantization block.
struct Shard {
  const char* weight;
  int64_t size;    // Of the model.
  int64_t slices;  // Ranks it is divided over.
  int64_t block;   // 0: nothing to divide.
  const char* block_word;
};

absl::Status CheckShard(const Shard& shard) {
  if (shard.size % shard.slices != 0) {
    return Refusal(absl::StrCat(shard.weight, ": ", shard.size, " over ", shard.slices,
                                " ranks: ", shard.size, " mod ", shard.slices, " = ",
                                shard.size % shard.slices));
  }
  const int64_t size = shard.size / shard.slices;
  if (shard.block > 0 && size % shard.block != 0) {
    return Refusal(absl::StrCat(shard.weight, ": ", shard.size, "/", shard.slices, " = ", size,
                                " is not a multiple of ", shard.block_word, " ", shard.block,
                                " (remainder ", size % shard.block, ")"));
  }
  return absl::OkStatus();
}

// Rows that a rank holds of a matrix whose output is sliced, then columns of one whose input is.
// Sides that no rank divides keep a ragged last block, as checkpoints do.
void AddShards(const char* rows_of, int64_t rows, const char* columns_of, int64_t columns,
               int64_t slices, const WeightStorage& storage, std::vector<Shard>& shards) {
  const char* word = storage.format == WeightFormat::kFp8Block ? "block" : "group";
  shards.push_back({rows_of, rows, slices, slices > 1 ? storage.block_rows : 0, word});
  shards.push_back({columns_of, columns, slices, storage.group_size, word});
}

absl::Status CheckShards(const Model& model, const Plan& plan) {
  const Layout layout = MakeLayout(model, plan, 0);
  const int64_t tensor = layout.tensor;
  const AttentionDims& a = model.attention;
  std::vector<Shard> shards;
  AddShards("moe.gate_up", model.moe_intermediate_size, "moe.down", model.moe_intermediate_size,
            layout.expert_slices, ExpertStorage(model, plan), shards);
  if (model.shared_intermediate_size > 0) {
    AddShards("shared.gate_up", model.shared_intermediate_size, "shared.down",
              model.shared_intermediate_size, tensor, model.shared, shards);
  }
  if (model.num_dense_layers() > 0) {
    AddShards("ffn.gate_up", model.dense_intermediate_size, "ffn.down",
              model.dense_intermediate_size, tensor, model.dense, shards);
  }
  if (a.kind == AttentionKind::kGqa) {
    AddShards("attention.qkv", a.num_heads * a.head_dim, "attention.output",
              a.num_heads * a.head_dim, tensor, model.attention_weights, shards);
    if (a.num_kv_heads >= tensor) {
      shards.push_back({"attention.qkv", a.num_kv_heads * a.head_dim, tensor,
                        tensor > 1 ? model.attention_weights.block_rows : 0, "block"});
    }
  } else {
    AddShards("attention.query_up", a.num_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim),
              "attention.output", a.num_heads * a.v_head_dim, tensor, model.attention_weights,
              shards);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    const absl::Status status = CheckShard(shards[i]);
    // The first two are the experts', whose format the plan may have chosen: it is named as a
    // field.
    if (!status.ok() && i < 2 && plan.moe.weights.has_value()) {
      return Refusal(
          absl::StrCat("moe.weights=", ToWord(*plan.moe.weights), ": ", status.message()));
    }
    LASTFLOP_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFeasible(const Model& model, const Plan& plan) {
  if (model.num_experts < 1 || model.top_k < 1 || model.top_k > model.num_experts) {
    return Refusal(absl::StrCat("num_experts=", model.num_experts, " with top_k=", model.top_k,
                                ": top_k is between 1 and num_experts"));
  }
  LASTFLOP_RETURN_IF_ERROR(CheckDegrees(model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckExperts(model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPaddedExperts(model, plan));
  if (!IsDataAttention(plan)) {
    LASTFLOP_RETURN_IF_ERROR(CheckHeads(model, plan.parallel.tensor));
  }
  LASTFLOP_RETURN_IF_ERROR(CheckExpertRanks(plan));
  return CheckShards(model, plan);
}

absl::Status CheckPoint(const Model& /*model*/, const Plan& plan, const Point& point) {
  if (point.batch < 1) {
    return Refusal(absl::StrCat("batch=", point.batch, ": a point has at least one sequence"));
  }
  if (point.context < 0 || (point.phase == Phase::kPrefill && point.context < 1)) {
    return Refusal(absl::StrCat("context=", point.context, " in ", ToWord(point.phase),
                                ": a prompt has at least one token"));
  }
  const int64_t replicas = NumReplicas(plan);
  if (point.batch < replicas) {
    return Refusal(absl::StrCat("batch=", point.batch, " over ", replicas,
                                " data-parallel groups: ", replicas - point.batch,
                                " would have no sequence"));
  }
  const int64_t sequences = point.batch / replicas;
  if (sequences < plan.parallel.micro_batches) {
    return Refusal(absl::StrCat("parallel.micro_batches=", plan.parallel.micro_batches, " of ",
                                sequences, " sequences a rank: some would be empty"));
  }
  const int64_t parts = replicas * plan.parallel.micro_batches;
  if (plan.parallel.micro_batches > 1 && point.batch % parts != 0) {
    return Refusal(absl::StrCat("batch=", point.batch, " over ", plan.parallel.micro_batches,
                                " micro-batches of ", replicas, " data-parallel group",
                                replicas == 1 ? "" : "s", ": ", point.batch, " mod ", parts, " = ",
                                point.batch % parts, ", and micro-batches are equally large"));
  }
  return absl::OkStatus();
}

}  // namespace lastflop
