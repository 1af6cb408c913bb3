#include "spec/huggingface_scheme.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

void AddPatterns(ConfigFields& fields, absl::string_view key, ModulePatterns& patterns) {
  for (const std::string& pattern : fields.StringList(key)) {
    if (const absl::Status status = patterns.Add(pattern); !status.ok()) {
      fields.Fail(key, status.message());
      return;
    }
  }
}

StorageGroup AllOf(WeightStorage storage) {
  return {.storage = storage, .all = true, .targets = {}};
}

void AssumeActivations(Model& model) {
  model.assumed.push_back(
      "activations: bf16 unless the plan sets moe.activations; the config quantizes them");
}

// Whether a `strategy` of scales is one that lastflop has for such weights, else an error.
bool HasStrategy(ConfigFields& weights, absl::string_view kind,
                 const std::vector<absl::string_view>& known) {
  const std::string strategy = weights.StringOr("strategy", known.front());
  if (weights.status().ok() && std::count(known.begin(), known.end(), strategy) == 0) {
    weights.Fail("strategy",
                 absl::StrCat("\"", strategy, "\": ", kind, " are modelled with scales by ",
                              absl::StrJoin(known, " or ")));
  }
  return weights.status().ok();
}

// An error where `key` is there and is not `known`: another format has another name here.
void RequireSize(ConfigFields& fields, absl::string_view key, int64_t known,
                 absl::string_view format) {
  const int64_t size = fields.SizeOr(key, known, -1, kMaxWidth);
  if (fields.status().ok() && size != known) {
    fields.Fail(key, absl::StrCat(size, ": ", format, " has ", known));
  }
}

// int4 in groups along the input dimension; others have no format here.
std::optional<WeightStorage> Int4Storage(ConfigFields& fields, int64_t group_size) {
  switch (group_size) {
    case 32:
      return StorageOf(WeightFormat::kInt4G32);
    case 128:
      return StorageOf(WeightFormat::kInt4G128);
    default:
      fields.Fail("group_size", absl::StrCat(group_size,
                                             ": int4 weights are modelled in groups of "
                                             "32 and 128"));
      return std::nullopt;
  }
}

// ---- fp8, as DeepSeek, Qwen and MiniMax publish it ----------------------------------------------

QuantizationScheme ReadFp8(ConfigFields& fields, Model& model) {
  QuantizationScheme scheme;
  AssumeActivations(model);  // To fp8, with scales made at run time or stored.
  const std::string bits = absl::AsciiStrToLower(fields.StringOr("fmt", "e4m3"));
  if (!absl::StrContains(bits, "e4m3")) {
    fields.Fail("fmt", absl::StrCat("\"", bits, "\": 8-bit floats are modelled as e4m3"));
  }
  WeightStorage storage = StorageOf(WeightFormat::kFp8);
  if (fields.Has("weight_block_size")) {
    const std::vector<int64_t> block = fields.SizeList("weight_block_size", 1, 65536);
    if (block.size() == 2) {
      storage = {.format = WeightFormat::kFp8Block, .group_size = block[1], .block_rows = block[0]};
    } else if (fields.status().ok()) {
      fields.Fail("weight_block_size",
                  absl::StrCat("has ", block.size(), " sizes: must be [rows, columns]"));
    }
  }
  scheme.groups.push_back(AllOf(storage));
  AddPatterns(fields, "modules_to_not_convert", scheme.ignored);
  AddPatterns(fields, "ignored_layers", scheme.ignored);
  return scheme;
}

// ---- awq and gptq -------------------------------------------------------------------------------

QuantizationScheme ReadInt4Groups(ConfigFields& fields, Model& model) {
  QuantizationScheme scheme;
  const absl::string_view bits_key = fields.FirstOf({"bits", "w_bit"});
  const int64_t bits = fields.Size(bits_key, 1, 16);
  if (fields.status().ok() && bits != 4) {
    fields.Fail(bits_key, absl::StrCat(bits, ": integer weights are modelled with 4 bits"));
  }
  const absl::string_view group_key = fields.FirstOf({"group_size", "q_group_size"});
  if (const auto storage = Int4Storage(fields, fields.Size(group_key, -1, kMaxWidth))) {
    scheme.groups.push_back(AllOf(*storage));
  }
  AddPatterns(fields, "modules_to_not_convert", scheme.ignored);
  if (fields.BoolOr("zero_point", false) || !fields.BoolOr("sym", true)) {
    model.not_modelled.push_back("zero points of the int4 weights: groups are symmetric");
  }
  scheme.keeps_lm_head = !fields.BoolOr("lm_head", false);
  if (fields.BoolOr("desc_act", false)) {
    model.not_modelled.push_back("desc_act: groups are in the order of the input");
  }
  // gptqmodel's overrides: "-:" in front of a regular expression leaves its modules alone.
  if (const ConfigValue* const overrides = fields.FindValue("dynamic")) {
    for (const auto& [pattern, value] : overrides->members) {
      if (absl::StartsWith(pattern, "-:")) {
        fields.Adopt(scheme.ignored.Add(absl::StrCat("re:", pattern.substr(2))));
      } else {
        model.not_modelled.push_back(
            absl::StrCat(fields.PathTo("dynamic"), ": ", pattern, " is stored like the others"));
      }
    }
  }
  return scheme;
}

// ---- compressed-tensors -------------------------------------------------------------------------

// The `weights` of a config group: type, num_bits, strategy, group_size, symmetric.
std::optional<WeightStorage> ReadGroupWeights(ConfigFields& weights, bool is_sparse_24,
                                              Model& model) {
  const std::string type = weights.StringOr("type", "int");
  const int64_t bits = weights.Size("num_bits", 1, 16);
  if (!weights.status().ok()) {
    return std::nullopt;
  }
  if (type == "int" && bits == 4) {
    if (!HasStrategy(weights, "int4 weights", {"group"})) {
      return std::nullopt;
    }
    if (!weights.BoolOr("symmetric", true)) {
      model.not_modelled.push_back("zero points of the int4 weights: groups are symmetric");
    }
    const auto storage = Int4Storage(weights, weights.Size("group_size", -1, kMaxWidth));
    if (storage.has_value() && is_sparse_24) {
      WeightStorage sparse = *storage;
      sparse.format = WeightFormat::kInt4G32Sparse24;
      return sparse;
    }
    return storage;
  }
  if (type == "float" && bits == 8) {
    if (!HasStrategy(weights, "8-bit floats", {"tensor", "channel", "block"})) {
      return std::nullopt;
    }
    if (weights.StringOr("strategy", "tensor") != "block") {
      if (weights.Has("group_size")) {
        weights.Fail("group_size",
                     "8-bit floats are modelled with scales by tensor, channel or "
                     "block, not by group");
      }
      return StorageOf(WeightFormat::kFp8);
    }
    const std::vector<int64_t> block = weights.SizeList("block_structure", 1, 65536);
    if (block.size() != 2) {
      weights.Fail("block_structure", "must be [rows, columns]");
      return std::nullopt;
    }
    return WeightStorage{
        .format = WeightFormat::kFp8Block, .group_size = block[1], .block_rows = block[0]};
  }
  if (type == "float" && bits == 4) {
    if (!HasStrategy(weights, "4-bit floats", {"group", "tensor_group"})) {
      return std::nullopt;
    }
    const int64_t group_size = weights.Size("group_size", 1, kMaxWidth);
    if (group_size == 16 || group_size == 32) {
      return StorageOf(group_size == 16 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4);
    }
    weights.Fail("group_size", absl::StrCat(group_size,
                                            ": 4-bit floats come in groups of 16 "
                                            "(nvfp4) or 32 (mxfp4)"));
    return std::nullopt;
  }
  weights.Fail("num_bits",
               absl::StrCat(bits, "-bit ", type, " weights are not modelled; known are ",
                            AllWords<WeightFormat>()));
  return std::nullopt;
}

void ReadConfigGroups(ConfigFields& fields, bool is_sparse_24, QuantizationScheme& scheme,
                      Model& model) {
  const ConfigValue* const groups = fields.FindValue("config_groups");
  if (groups == nullptr || groups->kind != ConfigValue::Kind::kObject || groups->members.empty()) {
    fields.Fail("config_groups", "must be an object with a group of weights or more");
    return;
  }
  bool quantizes_activations = false;
  for (const auto& [name, value] : groups->members) {
    ConfigFields group = fields.Inside(absl::StrCat("config_groups.", name), value);
    const ConfigValue* const weights_value = group.FindValue("weights");
    quantizes_activations = quantizes_activations || group.Has("input_activations");
    if (weights_value == nullptr) {
      continue;  // A group of activations or caches only.
    }
    ConfigFields weights = group.Inside("weights", *weights_value);
    const std::optional<WeightStorage> storage = ReadGroupWeights(weights, is_sparse_24, model);
    fields.Adopt(weights.status());
    StorageGroup stored = {
        .storage = storage.value_or(WeightStorage{}), .all = false, .targets = {}};
    const std::vector<std::string> targets = group.StringList("targets");
    stored.all = targets.empty() || std::count(targets.begin(), targets.end(), "Linear") > 0;
    if (!stored.all) {
      AddPatterns(group, "targets", stored.targets);
    }
    fields.Adopt(group.status());
    scheme.groups.push_back(std::move(stored));
  }
  if (quantizes_activations) {
    AssumeActivations(model);
  }
}

QuantizationScheme ReadCompressedTensors(ConfigFields& fields, Model& model) {
  QuantizationScheme scheme;
  scheme.keeps_lm_head = false;
  const ConfigValue* const sparsity = fields.FindValue("sparsity_config");
  const ConfigValue* const sparsity_format =
      sparsity != nullptr ? sparsity->Find("format") : nullptr;
  const bool is_sparse_24 =
      fields.StringOr("format", "") == "marlin-24" ||
      (sparsity_format != nullptr && absl::StartsWith(sparsity_format->text, "sparse-24"));
  ReadConfigGroups(fields, is_sparse_24, scheme, model);
  AddPatterns(fields, "ignore", scheme.ignored);
  return scheme;
}

// ---- modelopt -----------------------------------------------------------------------------------

// The groups that modelopt writes beside its quant_algo must say the same: `bits` a weight and, but
// for 0, `group_size`.
void CheckModeloptGroups(ConfigFields& block, int64_t bits, int64_t group_size,
                         absl::string_view algorithm) {
  if (group_size > 0) {
    RequireSize(block, "group_size", group_size, algorithm);
  }
  const ConfigValue* const groups = block.FindValue("config_groups");
  if (groups == nullptr) {
    return;
  }
  for (const auto& [name, group] : groups->members) {
    const ConfigValue* const value = group.Find("weights");
    if (value == nullptr || value->kind != ConfigValue::Kind::kObject) {
      continue;
    }
    ConfigFields weights = block.Inside(absl::StrCat("config_groups.", name, ".weights"), *value);
    RequireSize(weights, "num_bits", bits, algorithm);
    if (group_size > 0) {
      RequireSize(weights, "group_size", group_size, algorithm);
    }
    block.Adopt(weights.status());
  }
}

void ReportQuantizedCache(const ConfigFields& fields, Model& model) {
  const ConfigValue* const cache =
      fields.FindValue(fields.FirstOf({"kv_cache_scheme", "kv_cache_quant_algo"}));
  if (cache != nullptr) {
    model.assumed.push_back(
        "KV cache: bf16 unless the plan sets attention.cache; the config quantizes it");
  }
}

// `quant_algo` and its lists stand in the block, or in its `quantization` as in the file that
// modelopt writes beside the config.
QuantizationScheme ReadModelopt(ConfigFields& fields, Model& model) {
  const ConfigValue* const inner = fields.FindValue("quantization");
  const bool is_nested = inner != nullptr && inner->kind == ConfigValue::Kind::kObject;
  ConfigFields block =
      is_nested ? fields.Inside("quantization", *inner) : fields.Inside("", fields.object());
  QuantizationScheme scheme;
  scheme.keeps_lm_head = false;
  const std::string algorithm = absl::AsciiStrToUpper(block.StringOr("quant_algo", ""));
  if (algorithm == "NVFP4" || algorithm == "NVFP4_AWQ") {
    scheme.groups.push_back(AllOf(StorageOf(WeightFormat::kNvfp4)));
    CheckModeloptGroups(block, 4, 16, algorithm);
    AssumeActivations(model);
  } else if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    AssumeActivations(model);
    CheckModeloptGroups(block, 8, 0, algorithm);
    scheme.groups.push_back(AllOf(StorageOf(WeightFormat::kFp8)));
  } else if (algorithm == "FP8_PB_WO") {
    CheckModeloptGroups(block, 8, 0, algorithm);
    RequireSize(block, "group_size", 128, algorithm);
    scheme.groups.push_back(AllOf(StorageOf(WeightFormat::kFp8Block)));
  } else if (algorithm == "W4A16_AWQ") {
    const auto storage = Int4Storage(
        block, block.AssumeSize("group_size", 128, "as modelopt writes it", 1, kMaxWidth));
    scheme.groups.push_back(AllOf(storage.value_or(WeightStorage{})));
  } else {
    block.Fail("quant_algo", absl::StrCat("\"", algorithm,
                                          "\": known are NVFP4, NVFP4_AWQ, FP8, "
                                          "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO and W4A16_AWQ"));
  }
  AddPatterns(block, "exclude_modules", scheme.ignored);
  AddPatterns(block, "ignore", scheme.ignored);
  if (is_nested) {
    ReportQuantizedCache(block, model);
  }
  fields.Adopt(block.status());
  return scheme;
}

}  // namespace

QuantizationScheme ReadQuantizationScheme(ConfigFields& fields, Model& model) {
  const std::string method = absl::AsciiStrToLower(fields.StringOr("quant_method", "modelopt"));
  QuantizationScheme scheme;
  if (method == "fp8" || method == "fbgemm_fp8") {
    scheme = ReadFp8(fields, model);
  } else if (method == "compressed-tensors") {
    scheme = ReadCompressedTensors(fields, model);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    scheme = ReadModelopt(fields, model);
  } else if (method == "mxfp4") {
    scheme.groups.push_back(AllOf(StorageOf(WeightFormat::kMxfp4)));
    scheme.experts_only = true;
    AddPatterns(fields, "modules_to_not_convert", scheme.ignored);
  } else if (method == "awq" || method == "gptq") {
    scheme = ReadInt4Groups(fields, model);
  } else {
    fields.Fail("quant_method", absl::StrCat("\"", method,
                                             "\": known are fp8, fbgemm_fp8, compressed-tensors, "
                                             "modelopt, mxfp4, awq and gptq"));
  }
  ReportQuantizedCache(fields, model);
  return scheme;
}

}  // namespace lastflop
