#include "spec/model_yaml.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "spec/diagnostics.h"
#include "spec/map_reader.h"
#include "spec/model_rules.h"
#include "spec/scalars.h"
#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

// Reads the model's keys in the order in which their rules need each other.
class ModelBuilder {
 public:
  ModelBuilder(const YamlValue& root, Diagnostics& diagnostics)
      : diagnostics_(diagnostics), reader_(root, "", diagnostics) {}

  Model Build() {
    int64_t schema = 1;
    reader_.Required("schema", schema, IntegerIn(1, 1));
    reader_.Required("name", model_.name, ParseText);
    model_.model_type = "lastflop";
    Width("hidden_size", model_.hidden_size);
    Width("vocab_size", model_.vocab_size);
    ReadExperts();
    ReadLayers();
    ReadAttention();
    ReadRouter();
    ReadFormats();
    reader_.Optional("tie_word_embeddings", model_.tie_word_embeddings, ParseBool);
    model_.max_position_embeddings = 131072;
    reader_.Optional("max_position_embeddings", model_.max_position_embeddings, IntegerIn(1));
    reader_.Optional("rms_norm_epsilon", model_.rms_norm_epsilon, NumberIn(kPositive));
    reader_.Optional("rope_theta", model_.rope_theta, NumberIn(kPositive));
    reader_.Finish();
    return model_;
  }

 private:
  void Width(absl::string_view key, int64_t& out) {
    reader_.Required(key, out, IntegerIn(1, kMaxWidth));
  }

  static void Require(MapReader& reader, absl::string_view key, const std::string& problem) {
    if (!problem.empty()) {
      reader.Error(key, problem);
    }
  }

  void ReadExperts() {
    const bool has_experts =
        reader_.Required("num_experts", model_.num_experts, IntegerIn(1, kMaxExperts));
    const bool has_top_k = reader_.Required("top_k", model_.top_k, IntegerIn(1, kMaxExperts));
    if (has_experts && has_top_k) {
      Require(reader_, "top_k", TopKProblem(model_.top_k, model_.num_experts));
    }
    Width("moe_intermediate_size", model_.moe_intermediate_size);
    reader_.Optional("num_shared_experts", model_.num_shared_experts, IntegerIn(0, 1024));
    model_.shared_intermediate_size = model_.num_shared_experts * model_.moe_intermediate_size;
    const bool has_width = reader_.Optional(
        "shared_intermediate_size", model_.shared_intermediate_size, IntegerIn(1, kMaxWidth));
    if (has_width && model_.num_shared_experts == 0) {
      reader_.Error("shared_intermediate_size", "needs num_shared_experts of 1 or more");
    }
  }

  void ReadLayers() {
    if (!reader_.Required("num_layers", model_.num_layers, IntegerIn(1, kMaxLayers))) {
      model_.num_layers = 1;
    }
    model_.layer_kinds.assign(static_cast<size_t>(model_.num_layers), LayerKind::kMoe);
    if (const YamlValue* const dense = reader_.Optional("dense_layers")) {
      ReadDenseLayers(*dense);
    }
    if (model_.num_dense_layers() > 0) {
      Width("dense_intermediate_size", model_.dense_intermediate_size);
    } else if (reader_.Optional("dense_intermediate_size") != nullptr) {
      reader_.Error("dense_intermediate_size", "needs dense_layers");
    }
    if (model_.num_moe_layers() == 0) {
      reader_.Error("dense_layers", "leaves no layer with experts");
    }
  }

  void ReadDenseLayers(const YamlValue& value) {
    if (value.kind != YamlValue::Kind::kList) {
      int64_t num_leading = 0;
      if (reader_.Optional("dense_layers", num_leading, IntegerIn(0, model_.num_layers))) {
        std::fill_n(model_.layer_kinds.begin(), num_leading, LayerKind::kDense);
      }
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      const absl::StatusOr<int64_t> layer = IntegerIn(0, model_.num_layers - 1)(value.items[i]);
      if (!layer.ok()) {
        diagnostics_.Error(value.items[i].location, IndexPath("dense_layers", i),
                           layer.status().message());
        continue;
      }
      model_.layer_kinds[static_cast<size_t>(*layer)] = LayerKind::kDense;
    }
  }

  void ReadAttention() {
    const YamlValue* const value = reader_.Required("attention");
    if (value == nullptr) {
      return;
    }
    MapReader reader(*value, "attention", diagnostics_);
    AttentionDims& attention = model_.attention;
    const bool has_kind = reader.Required("kind", attention.kind, ParseWord<AttentionKind>);
    const bool has_heads = reader.Required("num_heads", attention.num_heads, IntegerIn(1, 65536));
    if (has_kind && attention.kind == AttentionKind::kMla) {
      reader.Optional("q_lora_rank", attention.q_lora_rank, IntegerIn(1, kMaxWidth));
      reader.Required("kv_lora_rank", attention.kv_lora_rank, IntegerIn(1, kMaxWidth));
      reader.Required("qk_nope_head_dim", attention.qk_nope_head_dim, IntegerIn(1, 65536));
      reader.Required("qk_rope_head_dim", attention.qk_rope_head_dim, IntegerIn(1, 65536));
      reader.Required("v_head_dim", attention.v_head_dim, IntegerIn(1, 65536));
      attention.rotary_dim = attention.qk_rope_head_dim;
      Require(reader, "qk_rope_head_dim", RotaryDimProblem(attention.rotary_dim));
    } else if (has_kind) {
      attention.num_kv_heads = attention.num_heads;
      reader.Optional("num_kv_heads", attention.num_kv_heads, IntegerIn(1, 65536));
      if (has_heads) {
        Require(reader, "num_kv_heads",
                KvHeadsProblem(attention.num_kv_heads, attention.num_heads));
      }
      reader.Required("head_dim", attention.head_dim, IntegerIn(1, 65536));
      attention.rotary_dim = attention.head_dim;
      reader.Optional("rotary_dim", attention.rotary_dim, IntegerIn(1, attention.head_dim));
      Require(reader, value->Find("rotary_dim") != nullptr ? "rotary_dim" : "head_dim",
              RotaryDimProblem(attention.rotary_dim));
    }
    reader.Optional("qk_norm", attention.qk_norm, ParseBool);
    reader.Optional("bias", attention.bias, ParseBool);
    if (has_kind) {
      reader.Finish();  // Which keys there may be depends on the kind.
    }
  }

  void ReadRouter() {
    const YamlValue* const value = reader_.Optional("router");
    if (value == nullptr) {
      model_.router.renormalize = true;
      model_.assumed.push_back("router: softmax over the experts, renormalized");
      return;
    }
    MapReader reader(*value, "router", diagnostics_);
    RouterDims& router = model_.router;
    reader.Optional("scoring", router.scoring, ParseWord<RouterScoring>);
    reader.Optional("has_bias", router.has_bias, ParseBool);
    reader.Optional("num_groups", router.num_groups, IntegerIn(1, kMaxExperts));
    router.top_k_groups = router.num_groups;
    reader.Optional("top_k_groups", router.top_k_groups, IntegerIn(1, kMaxExperts));
    reader.Optional("renormalize", router.renormalize, ParseBool);
    reader.Optional("softmax_after_top_k", router.softmax_after_top_k, ParseBool);
    reader.Optional("scaling_factor", router.scaling_factor, NumberIn(kPositive));
    if (model_.num_experts > 0) {
      const std::string problem = NumGroupsProblem(router.num_groups, model_.num_experts);
      Require(reader, "num_groups", problem);
      if (problem.empty()) {
        Require(reader, "top_k_groups",
                TopKGroupsProblem(router, model_.top_k, model_.num_experts));
      }
    }
    reader.Finish();
  }

  void ReadFormats() {
    const YamlValue* const value = reader_.Optional("formats");
    if (value == nullptr) {
      model_.assumed.push_back("expert_format: bf16 unless the plan sets moe.weights");
      return;
    }
    MapReader reader(*value, "formats", diagnostics_);
    const auto read = [&](absl::string_view key, WeightStorage& storage) {
      WeightFormat format = WeightFormat::kBf16;
      if (reader.Optional(key, format, ParseWord<WeightFormat>)) {
        storage = StorageOf(format);
      }
    };
    read("experts", model_.experts);
    read("shared", model_.shared);
    read("dense", model_.dense);
    read("attention", model_.attention_weights);
    read("lm_head", model_.lm_head);
    reader.Finish();
    AssumeAbsorbedKeys(model_);
  }

  Diagnostics& diagnostics_;  // Outlives this.
  MapReader reader_;
  Model model_;
};

}  // namespace

absl::StatusOr<Model> ReadModelYaml(absl::string_view text, absl::string_view file_name) {
  Diagnostics diagnostics{std::string(file_name)};
  const YamlValue root = ParseYaml(text, diagnostics);
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  Model model = ModelBuilder(root, diagnostics).Build();
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  return model;
}

}  // namespace lastflop
