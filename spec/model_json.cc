#include "spec/model_json.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace lastflop {
namespace {

using Json = nlohmann::ordered_json;

Json AttentionJson(const AttentionDims& attention) {
  Json json = {{"kind", ToWord(attention.kind)}, {"num_heads", attention.num_heads}};
  if (attention.kind == AttentionKind::kMla) {
    json["q_lora_rank"] = attention.q_lora_rank > 0 ? Json(attention.q_lora_rank) : Json(nullptr);
    json["kv_lora_rank"] = attention.kv_lora_rank;
    json["qk_nope_head_dim"] = attention.qk_nope_head_dim;
    json["qk_rope_head_dim"] = attention.qk_rope_head_dim;
    json["v_head_dim"] = attention.v_head_dim;
  } else {
    json["num_kv_heads"] = attention.num_kv_heads;
    json["head_dim"] = attention.head_dim;
  }
  json["rotary_dim"] = attention.rotary_dim;
  json["qk_norm"] = attention.qk_norm;
  json["bias"] = attention.bias;
  return json;
}

Json RouterJson(const RouterDims& router) {
  return {
      {"scoring", ToWord(router.scoring)},      {"has_bias", router.has_bias},
      {"num_groups", router.num_groups},        {"top_k_groups", router.top_k_groups},
      {"renormalize", router.renormalize},      {"softmax_after_top_k", router.softmax_after_top_k},
      {"scaling_factor", router.scaling_factor}};
}

// Runs of layers of one kind, in order.
std::vector<std::pair<LayerKind, int64_t>> LayerRuns(const Model& model) {
  std::vector<std::pair<LayerKind, int64_t>> runs;
  for (const LayerKind kind : model.layer_kinds) {
    if (runs.empty() || runs.back().first != kind) {
      runs.emplace_back(kind, 0);
    }
    ++runs.back().second;
  }
  return runs;
}

Json LayersJson(const Model& model) {
  Json json = Json::array();
  for (const auto& [kind, num_layers] : LayerRuns(model)) {
    json.push_back({{"kind", ToWord(kind)}, {"num_layers", num_layers}});
  }
  return json;
}

int64_t WholeBytes(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

Json BytesJson(const Model& model) {
  const double expert = ExpertBytes(model, model.experts);
  return {{"expert", WholeBytes(expert)},
          {"experts_per_layer", WholeBytes(expert * static_cast<double>(model.num_experts))},
          {"total", WholeBytes(ModelBytes(model))}};
}

// The format's word, or null for a class of weights that the model does not have.
Json FormatJson(const WeightStorage& storage, bool has_any) {
  return has_any ? Json(ToWord(storage.format)) : Json(nullptr);
}

Json NullIfZero(int64_t value) { return value > 0 ? Json(value) : Json(nullptr); }

std::string StorageText(const WeightStorage& storage) {
  const std::string word(ToWord(storage.format));
  if (storage.block_rows > 0) {
    return absl::StrCat(word, ", blocks of ", storage.block_rows, "x", storage.group_size);
  }
  return storage.group_size > 0 ? absl::StrCat(word, ", groups of ", storage.group_size) : word;
}

std::string AttentionText(const AttentionDims& attention) {
  if (attention.kind == AttentionKind::kMla) {
    return absl::StrCat("mla, ", attention.num_heads, " heads, ranks ", attention.q_lora_rank,
                        " (query) and ", attention.kv_lora_rank, " (key and value), heads of ",
                        attention.qk_nope_head_dim, " + ", attention.qk_rope_head_dim, " and ",
                        attention.v_head_dim);
  }
  return absl::StrCat("gqa, ", attention.num_heads, " heads on ", attention.num_kv_heads,
                      " of the cache, heads of ", attention.head_dim,
                      attention.qk_norm ? ", normalized" : "");
}

std::string RouterText(const RouterDims& router) {
  std::string text(ToWord(router.scoring));
  if (router.has_bias) {
    absl::StrAppend(&text, " with bias");
  }
  if (router.num_groups > 1) {
    absl::StrAppend(&text, ", best ", router.top_k_groups, " of ", router.num_groups, " groups");
  }
  if (router.renormalize) {
    absl::StrAppend(&text, ", renormalized");
  }
  return text;
}

std::string LayersText(const Model& model) {
  const auto runs = LayerRuns(model);
  if (runs.size() > 4) {
    return absl::StrCat(model.num_layers, ": ", model.num_moe_layers(), " moe and ",
                        model.num_dense_layers(), " dense, interleaved");
  }
  std::string text = absl::StrCat(model.num_layers, ":");
  for (const auto& [kind, num_layers] : runs) {
    absl::StrAppend(&text, " ", num_layers, " ", ToWord(kind));
  }
  return text;
}

std::string OtherFormatsText(const Model& model) {
  std::string text = absl::StrCat("attention ", ToWord(model.attention_weights.format));
  if (model.num_shared_experts > 0) {
    absl::StrAppend(&text, ", shared ", ToWord(model.shared.format));
  }
  if (model.num_dense_layers() > 0) {
    absl::StrAppend(&text, ", dense ", ToWord(model.dense.format));
  }
  return absl::StrCat(text, ", lm_head ", ToWord(model.lm_head.format));
}

std::string GibText(double bytes) { return absl::StrFormat("%.2f GiB", bytes / (1 << 30)); }

void AppendNotes(const char* title, const std::vector<std::string>& notes, std::string& out) {
  if (notes.empty()) {
    return;
  }
  absl::StrAppend(&out, "\n", title, "\n");
  for (const std::string& note : notes) {
    absl::StrAppend(&out, "  ", note, "\n");
  }
}

}  // namespace

std::string ModelToJsonDocument(const Model& model) {
  const Json json = {
      {"schema", 1},
      {"name", model.name},
      {"architecture", model.architecture},
      {"model_type", model.model_type},
      {"hidden_size", model.hidden_size},
      {"num_layers", model.num_layers},
      {"num_dense_layers", model.num_dense_layers()},
      {"layers", LayersJson(model)},
      {"num_experts", model.num_experts},
      {"top_k", model.top_k},
      {"moe_intermediate_size", model.moe_intermediate_size},
      {"num_shared_experts", model.num_shared_experts},
      {"shared_intermediate_size", NullIfZero(model.shared_intermediate_size)},
      {"dense_intermediate_size", NullIfZero(model.dense_intermediate_size)},
      {"vocab_size", model.vocab_size},
      {"tie_word_embeddings", model.tie_word_embeddings},
      {"max_position_embeddings", model.max_position_embeddings},
      {"attention", AttentionJson(model.attention)},
      {"router", RouterJson(model.router)},
      {"expert_format", ToWord(model.experts.format)},
      {"group_size", NullIfZero(model.experts.group_size)},
      {"formats",
       {{"experts", ToWord(model.experts.format)},
        {"shared", FormatJson(model.shared, model.num_shared_experts > 0)},
        {"dense", FormatJson(model.dense, model.num_dense_layers() > 0)},
        {"attention", ToWord(model.attention_weights.format)},
        {"lm_head", ToWord(model.lm_head.format)}}},
      {"bytes", BytesJson(model)},
      {"assumed", model.assumed},
      {"not_modelled", model.not_modelled},
  };
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

std::string ModelToTable(const Model& model) {
  const double expert_bytes = ExpertBytes(model, model.experts);
  const std::pair<const char*, std::string> rows[] = {
      {"model", absl::StrCat(model.name, " (", model.model_type, ")")},
      {"hidden_size", absl::StrCat(model.hidden_size)},
      {"num_layers", LayersText(model)},
      {"num_experts", absl::StrCat(model.num_experts, ", top_k ", model.top_k, ", shared ",
                                   model.num_shared_experts)},
      {"moe_intermediate_size", absl::StrCat(model.moe_intermediate_size)},
      {"attention", AttentionText(model.attention)},
      {"router", RouterText(model.router)},
      {"expert_format", StorageText(model.experts)},
      {"other weights", OtherFormatsText(model)},
      {"bytes", absl::StrFormat("%.2f MiB an expert, %s of experts a layer, %s in all",
                                expert_bytes / (1 << 20),
                                GibText(expert_bytes * static_cast<double>(model.num_experts)),
                                GibText(ModelBytes(model)))},
  };
  std::string out;
  for (const auto& [name, value] : rows) {
    absl::StrAppendFormat(&out, "%-22s %s\n", name, value);
  }
  AppendNotes("assumed", model.assumed, out);
  AppendNotes("not modelled", model.not_modelled, out);
  return out;
}

}  // namespace lastflop
