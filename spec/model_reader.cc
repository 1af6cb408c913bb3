#include "spec/model_reader.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "spec/config_json.h"
#include "spec/config_json_fields.h"
#include "spec/huggingface_families.h"
#include "spec/huggingface_quantization.h"
#include "spec/model_rules.h"
#include "spec/model_yaml.h"
#include "spec/text_file.h"

namespace lastflop {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;  // A published config has kilobytes.

// Every way in which the known families say that there are experts.
constexpr absl::string_view kExpertKeys[] = {"num_experts", "n_routed_experts",
                                             "num_local_experts"};

// Whether the model has layers whose attention is no attention over the context. Their cost has
// another form, so a figure for them would be wrong, not merely rough.
std::string LinearAttentionReason(const ConfigFields& fields) {
  for (const absl::string_view key :
       {"full_attention_interval", "linear_num_key_heads", "linear_attn_config", "mamba_d_state"}) {
    if (fields.Has(key)) {
      return absl::StrCat("has ", key, ": layers of linear attention or state are not modelled");
    }
  }
  const ConfigValue* const kinds = fields.FindValue("attn_type_list");
  if (kinds != nullptr && std::any_of(kinds->items.begin(), kinds->items.end(),
                                      [](const ConfigValue& kind) { return kind.integer == 0; })) {
    return "has attn_type_list with linear layers, which are not modelled";
  }
  return "";
}

absl::StatusOr<const ModelFamily*> FamilyOf(ConfigFields& fields) {
  const std::string model_type = fields.StringOr("model_type", "");
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  const bool has_experts = std::any_of(std::begin(kExpertKeys), std::end(kExpertKeys),
                                       [&](absl::string_view key) { return fields.Has(key); });
  if (!has_experts) {
    return fields.ErrorAt("model_type",
                          absl::StrCat("\"", model_type,
                                       "\" has none of num_experts, n_routed_experts and "
                                       "num_local_experts: lastflop is for models with experts"));
  }
  if (const std::string reason = LinearAttentionReason(fields); !reason.empty()) {
    return fields.ErrorAt("model_type", absl::StrCat("\"", model_type, "\" ", reason));
  }
  const ModelFamily* const family = FindModelFamily(model_type);
  if (family == nullptr) {
    return fields.ErrorAt(
        "model_type",
        absl::StrCat("\"", model_type, "\" is not known; known are ", AllModelTypes()));
  }
  return family;
}

void ReadSharedByAllFamilies(ConfigFields& fields, Model& model) {
  model.hidden_size = fields.Size("hidden_size", 1, kMaxWidth);
  model.num_layers = fields.Size("num_hidden_layers", 1, kMaxLayers);
  model.vocab_size = fields.Size("vocab_size", 1, 1 << 28);
  model.max_position_embeddings =
      fields.AssumeSize("max_position_embeddings", 131072, "as usual", 1, int64_t{1} << 40);
  model.rms_norm_epsilon = fields.AssumeNumber("rms_norm_eps", 1e-6, "as usual");
}

// rope_theta stands in the config, or in its rope_parameters as newer ones have it. Scaling changes
// the angles, not the work.
void ReadRope(ConfigFields& fields, Model& model) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    const ConfigValue* const value = fields.FindValue(key);
    if (value == nullptr || value->kind != ConfigValue::Kind::kObject) {
      continue;
    }
    ConfigFields rope = fields.Inside(key, *value);
    const std::string type = rope.StringOr(rope.FirstOf({"rope_type", "type"}), "default");
    if (type != "default") {
      model.not_modelled.push_back(
          absl::StrCat(fields.PathTo(key), ": ", type, ", which changes angles and not the work"));
    }
    if (rope.Has("rope_theta") && !fields.Has("rope_theta")) {
      model.rope_theta = rope.NumberOr("rope_theta", 10000);
      fields.Adopt(rope.status());
      return;
    }
    fields.Adopt(rope.status());
  }
  model.rope_theta = fields.AssumeNumber("rope_theta", 10000, "as usual");
}

// A window that some or all layers attend to instead of the whole context.
void ReportSlidingWindow(ConfigFields& fields, Model& model) {
  if (!fields.Has("sliding_window") || !fields.BoolOr("use_sliding_window", true)) {
    return;
  }
  std::string layers = "its layers";
  if (fields.Has("layer_types")) {
    const std::vector<std::string> types = fields.StringList("layer_types");
    layers = absl::StrCat(std::count(types.begin(), types.end(), "sliding_attention"), " of ",
                          model.num_layers, " layers");
  }
  model.not_modelled.push_back(absl::StrCat(fields.PathTo("sliding_window"), ": ",
                                            fields.SizeOr("sliding_window", 0, 0, int64_t{1} << 40),
                                            " in ", layers,
                                            ": every layer attends to the whole context"));
}

void ReportWhatIsLeftOut(const ConfigFields& root, ConfigFields& fields, Model& model) {
  for (const absl::string_view key : {"num_nextn_predict_layers", "num_mtp_modules"}) {
    const int64_t num_modules = fields.SizeOr(key, 0, 0, kMaxLayers);
    if (num_modules > 0) {
      model.not_modelled.push_back(absl::StrCat(fields.PathTo(key), ": ", num_modules,
                                                ", multi-token prediction is left out"));
    }
  }
  for (const absl::string_view key : {"vision_config", "audio_config"}) {
    if (root.Has(key)) {
      model.not_modelled.push_back(absl::StrCat(key, ": only the language model is read"));
    }
  }
  const std::string activation = fields.StringOr("hidden_act", "silu");
  if (activation != "silu") {
    model.not_modelled.push_back(
        absl::StrCat(fields.PathTo("hidden_act"), ": ", activation, ", run as silu"));
  }
}

// Keys that change the work of a step in some family. `one_is_none`: 1 says that there is no such
// thing, as 0, false and an empty list do for all.
struct WorkKey {
  absl::string_view key;
  bool one_is_none = false;
};
constexpr WorkKey kWorkKeys[] = {{"n_shared_experts"},
                                 {"num_shared_experts"},
                                 {"moe_num_shared_experts"},
                                 {"shared_expert_intermediate_size"},
                                 {"shared_intermediate_size"},
                                 {"zero_expert_num"},
                                 {"first_k_dense_replace"},
                                 {"mlp_only_layers"},
                                 {"moe_layer_freq", true},
                                 {"decoder_sparse_step", true},
                                 {"interleave_moe_layer_step", true},
                                 {"n_group", true},
                                 {"topk_group", true},
                                 {"q_lora_rank"},
                                 {"kv_lora_rank"},
                                 {"rotary_dim"},
                                 {"partial_rotary_factor", true},
                                 {"index_topk"},
                                 {"attention_chunk_size"},
                                 {"attention_bias"},
                                 {"qkv_bias"},
                                 {"mlp_bias"},
                                 {"use_qk_norm"},
                                 {"qk_norm_type"}};

bool SaysNone(const ConfigValue& value, bool one_is_none) {
  switch (value.kind) {
    case ConfigValue::Kind::kBool:
      return !value.boolean;
    case ConfigValue::Kind::kInteger:
    case ConfigValue::Kind::kNumber:
      return value.number == 0 || (one_is_none && value.number == 1);
    case ConfigValue::Kind::kArray:
      return value.items.empty();
    default:
      return false;
  }
}

// What a family does not read it does not run either.
void ReportWhatTheFamilyDoesNotRead(const ConfigFields& fields, Model& model) {
  for (const auto& [key, one_is_none] : kWorkKeys) {
    if (fields.WasAsked(key)) {
      continue;
    }
    const ConfigValue* const value = fields.FindValue(key);
    if (value != nullptr && !SaysNone(*value, one_is_none)) {
      model.not_modelled.push_back(absl::StrCat(fields.PathTo(key), ": ",
                                                ConfigFields::ValueText(*value), ", not read for ",
                                                model.model_type));
    }
  }
}

// The quantization block of the language model or, around it, of the whole checkpoint.
void ReadStorage(ConfigFields& root, ConfigFields& fields, const ModelFamily& family,
                 Model& model) {
  for (ConfigFields* const where : {&fields, &root}) {
    for (const absl::string_view key : {"quantization_config", "compression_config"}) {
      const ConfigValue* const value = where->FindValue(key);
      if (value == nullptr) {
        continue;
      }
      if (value->kind != ConfigValue::Kind::kObject) {
        fields.Adopt(where->ErrorAt(key, "must be an object"));
        return;
      }
      ConfigFields block = where->Inside(key, *value);
      ReadQuantization(family.modules, block, model);
      fields.Adopt(block.status());
      return;
    }
  }
  model.assumed.push_back(
      "expert_format: bf16 unless the plan sets moe.weights; the config has no quantization block");
}

absl::StatusOr<Model> ReadRoot(const ConfigValue& root_value, absl::string_view file_name) {
  Model model;
  model.name = ModelNameOf(file_name);
  ConfigFields root(root_value, "", file_name, &model.assumed);
  const ConfigValue* const text_config = root.FindValue("text_config");
  const bool is_nested = text_config != nullptr && text_config->kind == ConfigValue::Kind::kObject;
  ConfigFields fields =
      is_nested ? root.Inside("text_config", *text_config) : root.Inside("", root_value);

  LASTFLOP_ASSIGN_OR_RETURN(const ModelFamily* const family, FamilyOf(fields));
  model.model_type = std::string(family->model_type);
  const std::vector<std::string> architectures = root.StringList("architectures");
  model.architecture = architectures.empty() ? "" : architectures.front();
  LASTFLOP_RETURN_IF_ERROR(root.status());

  ReadSharedByAllFamilies(fields, model);
  // What follows divides by these sizes, so they must be right.
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  family->read(fields, model);
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  model.tie_word_embeddings =
      (fields.Has("tie_word_embeddings") ? fields : root)
          .AssumeBool("tie_word_embeddings", false, "as in all families known here");
  ReadRope(fields, model);
  ReportSlidingWindow(fields, model);
  ReportWhatIsLeftOut(root, fields, model);
  ReportWhatTheFamilyDoesNotRead(fields, model);
  if (const std::string problem = RotaryDimProblem(model.attention.rotary_dim); !problem.empty()) {
    return fields.ErrorAt(fields.FirstOf({"rotary_dim", "partial_rotary_factor", "head_dim"}),
                          problem);
  }
  ReadStorage(root, fields, *family, model);
  LASTFLOP_RETURN_IF_ERROR(root.status());
  LASTFLOP_RETURN_IF_ERROR(fields.status());
  if (model.num_moe_layers() == 0) {
    return fields.ErrorAt("", "no layer of the model has experts");
  }
  return model;
}

}  // namespace

absl::StatusOr<Model> ReadModelConfig(absl::string_view text, absl::string_view file_name) {
  LASTFLOP_ASSIGN_OR_RETURN(const ConfigValue root, ParseConfigJson(text, file_name));
  if (root.kind != ConfigValue::Kind::kObject) {
    return ConfigError(file_name, 1, 1, "",
                       absl::StrCat("is ", KindWord(root.kind), ": must be an object"));
  }
  return ReadRoot(root, file_name);
}

absl::StatusOr<Model> ReadModelFile(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  const bool is_yaml = absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
  return is_yaml ? ReadModelYaml(text, path) : ReadModelConfig(text, path);
}

std::string ModelNameOf(absl::string_view file_name) {
  const std::filesystem::path path{std::string(file_name)};
  const std::string stem = path.stem().string();
  if (stem == "config" && path.has_parent_path()) {
    return path.parent_path().filename().string();
  }
  return std::string(absl::StripSuffix(stem, ".config"));
}

}  // namespace lastflop
