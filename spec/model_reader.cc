#include "spec/model_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
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

// Where configs of models with images or sound have their language model.
struct TextPlace {
  absl::string_view key;
  absl::string_view inner = "";  // A member of that one, or "" for itself.
};
constexpr TextPlace kTextPlaces[] = {
    {"text_config"}, {"language_config"}, {"llm_config"}, {"thinker_config", "text_config"}};
constexpr absl::string_view kTextPlacesText =
    "text_config, language_config, llm_config and thinker_config.text_config";

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
  const ConfigValue* const types = fields.FindValue("layer_types");
  if (types != nullptr) {
    for (const ConfigValue& type : types->items) {
      for (const absl::string_view word : {"linear", "mamba", "recurrent", "conv"}) {
        if (absl::StrContains(type.text, word)) {
          return absl::StrCat("has layer_types with ", type.text,
                              ": layers of linear attention or state are not modelled");
        }
      }
    }
  }
  return "";
}

// The language model that `root` is or has inside, and `around`: what stands right around it.
struct LanguageModel {
  ConfigFields around;
  ConfigFields fields;
  bool is_nested = false;
};

absl::StatusOr<ConfigFields> ObjectInside(const ConfigFields& fields, absl::string_view key,
                                          const ConfigValue& value) {
  if (value.kind != ConfigValue::Kind::kObject) {
    return fields.ErrorAt(key, absl::StrCat(ConfigFields::ValueText(value), ": must be an object"));
  }
  return fields.Inside(key, value);
}

absl::StatusOr<LanguageModel> FindLanguageModel(const ConfigFields& root) {
  for (const auto& [key, inner] : kTextPlaces) {
    const ConfigValue* const value = root.FindValue(key);
    if (value == nullptr) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(ConfigFields fields, ObjectInside(root, key, *value));
    if (inner.empty()) {
      return LanguageModel{root, std::move(fields), true};
    }
    const ConfigValue* const inner_value = fields.FindValue(inner);
    if (inner_value == nullptr) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(ConfigFields inside, ObjectInside(fields, inner, *inner_value));
    return LanguageModel{std::move(fields), std::move(inside), true};
  }
  return LanguageModel{root, root.Inside("", root.object())};
}

// The type that the language model says, else that of what stands around it.
absl::StatusOr<const ModelFamily*> FamilyOf(ConfigFields& root, LanguageModel& found) {
  ConfigFields& fields = found.fields;
  std::string model_type;
  for (ConfigFields* const where : {&fields, &found.around, &root}) {
    if (model_type.empty()) {
      model_type = where->StringOr("model_type", "");
      LASTFLOP_RETURN_IF_ERROR(where->status());
    }
  }
  const bool has_experts = std::any_of(std::begin(kExpertKeys), std::end(kExpertKeys),
                                       [&](absl::string_view key) { return fields.Has(key); });
  if (!has_experts) {
    return fields.ErrorAt(
        "model_type",
        absl::StrCat("\"", model_type, "\" has none of num_experts, n_routed_experts and ",
                     "num_local_experts: lastflop is for models with experts",
                     found.is_nested ? "" : absl::StrCat(", here or in ", kTextPlacesText)));
  }
  if (const std::string reason = LinearAttentionReason(fields); !reason.empty()) {
    return fields.ErrorAt("model_type", absl::StrCat("\"", model_type, "\" ", reason));
  }
  const ModelFamily* const family = FindModelFamily(model_type);
  if (family == nullptr) {
    return fields.ErrorAt(
        "model_type",
        absl::StrCat(
            model_type.empty() ? "is missing" : absl::StrCat("\"", model_type, "\" is not known"),
            "; known are ", AllModelTypes()));
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
void ReadRope(ConfigFields& fields, double usual_theta, Model& model) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    const ConfigValue* const value = fields.FindValue(key);
    if (value == nullptr) {
      continue;
    }
    if (value->kind != ConfigValue::Kind::kObject) {
      fields.Fail(key, absl::StrCat(ConfigFields::ValueText(*value), ": must be an object"));
      return;
    }
    ConfigFields rope = fields.Inside(key, *value);
    const std::string type = rope.StringOr(rope.FirstOf({"rope_type", "type"}), "default");
    if (type != "default") {
      model.not_modelled.push_back(
          absl::StrCat(fields.PathTo(key), ": ", type, ", which changes angles and not the work"));
    }
    if (rope.Has("rope_theta") && !fields.Has("rope_theta")) {
      model.rope_theta = rope.NumberOr("rope_theta", usual_theta);
      fields.Adopt(rope.status());
      return;
    }
    fields.Adopt(rope.status());
  }
  model.rope_theta = fields.AssumeNumber("rope_theta", usual_theta, "the family's default");
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

// Kinds of layers that are neither of full attention nor those of `sliding_window`.
void ReportLayerTypes(ConfigFields& fields, Model& model) {
  std::map<std::string, int> counts;
  for (const std::string& type : fields.StringList("layer_types")) {
    ++counts[type];
  }
  for (const auto& [type, count] : counts) {
    const bool is_reported = (type == "sliding_attention" && fields.Has("sliding_window")) ||
                             (type == "chunked_attention" && fields.Has("attention_chunk_size")) ||
                             (type == "deepseek_sparse_attention" && fields.Has("index_topk"));
    if (type != "full_attention" && !is_reported) {
      model.not_modelled.push_back(absl::StrCat(fields.PathTo("layer_types"), ": ", type, " in ",
                                                count, " of ", model.num_layers,
                                                " layers: every layer attends to the whole "
                                                "context"));
    }
  }
}

// What weights are stored in where there is no quantization block; bf16 where nothing is said.
void ReportOtherDtype(ConfigFields& root, ConfigFields& fields, Model& model) {
  for (ConfigFields* const where : {&fields, &root}) {
    for (const absl::string_view key : {"dtype", "torch_dtype"}) {
      const std::string text = where->StringOr(key, "");
      const absl::string_view dtype = absl::StripPrefix(text, "torch.");
      if (dtype.empty() || dtype == "auto") {
        continue;
      }
      if (dtype == "float16") {
        model.assumed.push_back(
            absl::StrCat("weights: bf16, of the size of the config's ", key, ", float16"));
      } else if (dtype != "bfloat16") {
        model.not_modelled.push_back(
            absl::StrCat(where->PathTo(key), ": ", dtype,
                         " without a quantization block: weights are taken as bf16"));
      }
      return;
    }
  }
}

void ReportWhatIsLeftOut(const ConfigFields& root, const ConfigFields& around, ConfigFields& fields,
                         Model& model) {
  for (const absl::string_view key : {"num_nextn_predict_layers", "num_mtp_modules"}) {
    const int64_t num_modules = fields.SizeOr(key, 0, 0, kMaxLayers);
    if (num_modules > 0) {
      model.not_modelled.push_back(absl::StrCat(fields.PathTo(key), ": ", num_modules,
                                                ", multi-token prediction is left out"));
    }
  }
  for (const absl::string_view key :
       {"vision_config", "audio_config", "talker_config", "code2wav_config"}) {
    if (root.Has(key) || around.Has(key)) {
      model.not_modelled.push_back(absl::StrCat((root.Has(key) ? root : around).PathTo(key),
                                                ": only the language model is read"));
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
  const ConfigValue* const rope = fields.FindValue("rope_parameters");
  for (const auto& [key, one_is_none] : kWorkKeys) {
    if (fields.WasAsked(key)) {
      continue;
    }
    const ConfigValue* value = fields.FindValue(key);
    if (value == nullptr && rope != nullptr) {
      value = rope->Find(key);  // partial_rotary_factor stands in either.
    }
    if (value != nullptr && !SaysNone(*value, one_is_none)) {
      model.not_modelled.push_back(absl::StrCat(fields.PathTo(key), ": ",
                                                ConfigFields::ValueText(*value), ", not read for ",
                                                model.model_type));
    }
  }
}

// The quantization block of the language model or, around it, of the whole checkpoint.
void ReadStorage(ConfigFields& root, ConfigFields& around, ConfigFields& fields,
                 const ModelFamily& family, Model& model) {
  for (ConfigFields* const where : {&fields, &around, &root}) {
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
  ReportOtherDtype(root, fields, model);
  model.assumed.push_back(
      "expert_format: bf16 unless the plan sets moe.weights; the config has no quantization block");
}

absl::StatusOr<Model> ReadRoot(const ConfigValue& root_value, absl::string_view file_name) {
  Model model;
  model.name = ModelNameOf(file_name);
  ConfigFields root(root_value, "", file_name, &model.assumed);
  LASTFLOP_ASSIGN_OR_RETURN(LanguageModel found, FindLanguageModel(root));
  ConfigFields& fields = found.fields;
  LASTFLOP_ASSIGN_OR_RETURN(const ModelFamily* const family, FamilyOf(root, found));
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
  ReadRope(fields, family->rope_theta, model);
  ReportSlidingWindow(fields, model);
  ReportLayerTypes(fields, model);
  ReportWhatIsLeftOut(root, found.around, fields, model);
  ReportWhatTheFamilyDoesNotRead(fields, model);
  if (const std::string problem = RotaryDimProblem(model.attention.rotary_dim); !problem.empty()) {
    return fields.ErrorAt(
        fields.FirstOf({"rotary_dim", "partial_rotary_factor", "head_dim", "num_attention_heads"}),
        problem);
  }
  ReadStorage(root, found.around, fields, *family, model);
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
