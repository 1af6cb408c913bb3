#include "spec/huggingface_quantization.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spec/huggingface_scheme.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

WeightStorage StorageIn(const QuantizationScheme& scheme, const std::string& module) {
  if (scheme.ignored.Matches(module)) {
    return {};
  }
  for (const StorageGroup& group : scheme.groups) {
    if (group.all || group.targets.Matches(module)) {
      return group.storage;
    }
  }
  return {};
}

// The storage that most of `modules` have. A block may treat layers of one class differently; the
// model has one storage a class, so the difference is reported.
WeightStorage MostCommonStorage(const QuantizationScheme& scheme, absl::string_view name,
                                const std::vector<std::string>& modules, Model& model) {
  std::vector<std::pair<WeightStorage, int>> counts;
  for (const std::string& module : modules) {
    const WeightStorage storage = StorageIn(scheme, module);
    auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) {
      return entry.first.format == storage.format && entry.first.group_size == storage.group_size;
    });
    if (found == counts.end()) {
      found = counts.insert(counts.end(), {storage, 0});
    }
    ++found->second;
  }
  if (counts.empty()) {
    return {};
  }
  const auto most = std::max_element(
      counts.begin(), counts.end(),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  if (counts.size() > 1) {
    model.not_modelled.push_back(absl::StrCat(
        "weights of ", name, " in several formats: all are taken as ", ToWord(most->first.format)));
  }
  return most->first;
}

// A few layers of a kind, the first and the last among them: enough to see the patterns that are
// published, few enough for long lists of expressions.
std::vector<int64_t> SomeLayers(const Model& model, std::optional<LayerKind> kind) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (!kind.has_value() || model.layer_kinds[static_cast<size_t>(layer)] == *kind) {
      layers.push_back(layer);
    }
  }
  constexpr size_t kNumLayers = 5;
  if (layers.size() <= kNumLayers) {
    return layers;
  }
  std::vector<int64_t> some;
  for (size_t i = 0; i < kNumLayers; ++i) {
    some.push_back(layers[i * (layers.size() - 1) / (kNumLayers - 1)]);
  }
  return some;
}

std::vector<std::string> AttentionModules(const Model& model) {
  const bool is_mla = model.attention.kind == AttentionKind::kMla;
  std::vector<absl::string_view> projections = {"q_proj", "k_proj", "v_proj", "o_proj"};
  if (is_mla && model.attention.q_lora_rank > 0) {
    projections = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  } else if (is_mla) {
    projections = {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  }
  std::vector<std::string> modules;
  for (const int64_t layer : SomeLayers(model, std::nullopt)) {
    for (const absl::string_view projection : projections) {
      modules.push_back(absl::StrCat("layers.", layer, ".self_attn.", projection));
    }
  }
  return modules;
}

// The FFN projections under `part` ("experts.0.", "" for a dense layer) in layers of a kind.
std::vector<std::string> FfnModules(const Model& model, const ModuleNames& names, LayerKind kind,
                                    absl::string_view part) {
  std::vector<std::string> modules;
  for (const int64_t layer : SomeLayers(model, kind)) {
    for (const absl::string_view projection : names.projections) {
      modules.push_back(absl::StrCat("layers.", layer, ".", names.ffn, ".", part, projection));
    }
  }
  return modules;
}

void Apply(const QuantizationScheme& scheme, const ModuleNames& names, Model& model) {
  model.experts = MostCommonStorage(scheme, "experts",
                                    FfnModules(model, names, LayerKind::kMoe, "experts.0."), model);
  if (scheme.experts_only) {
    return;
  }
  if (model.num_shared_experts > 0) {
    model.shared = MostCommonStorage(
        scheme, "shared experts",
        FfnModules(model, names, LayerKind::kMoe, absl::StrCat(names.shared, ".")), model);
  }
  model.dense = MostCommonStorage(scheme, "dense layers",
                                  FfnModules(model, names, LayerKind::kDense, ""), model);
  model.attention_weights = MostCommonStorage(scheme, "attention", AttentionModules(model), model);
  AssumeAbsorbedKeys(model);
  if (!scheme.keeps_lm_head) {
    model.lm_head = StorageIn(scheme, "lm_head");
  }
}

}  // namespace

void ReadQuantization(const ModuleNames& modules, ConfigFields& fields, Model& model) {
  const QuantizationScheme scheme = ReadQuantizationScheme(fields, model);
  if (fields.status().ok()) {
    Apply(scheme, modules, model);
  }
}

}  // namespace lastflop
