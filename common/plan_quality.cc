#include "common/plan_quality.h"

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

template <typename Format>
void AddFormat(absl::string_view path, Format from, Format to, std::vector<std::string>& changes) {
  if (to != from && to != Format::kBf16) {
    changes.push_back(absl::StrCat(path, ": ", ToWord(from), " -> ", ToWord(to)));
  }
}

std::string KeptExperts(int64_t keep, const Model& model) {
  return keep == 0 ? absl::StrCat("top_k of ", model.top_k) : absl::StrCat("opportunistic:", keep);
}

}  // namespace

std::vector<std::string> LossyChanges(const Model& model, const Plan& baseline,
                                      const Plan& variant) {
  std::vector<std::string> changes;
  AddFormat("moe.weights", baseline.moe.weights.value_or(model.experts.format),
            variant.moe.weights.value_or(model.experts.format), changes);
  AddFormat("moe.activations", baseline.moe.activations, variant.moe.activations, changes);
  const int64_t keep = variant.moe.opportunistic_keep;
  if (keep != 0 && keep != baseline.moe.opportunistic_keep) {
    changes.push_back(
        absl::StrCat("moe.expert_activation: ", KeptExperts(baseline.moe.opportunistic_keep, model),
                     " -> ", KeptExperts(keep, model)));
  }
  AddFormat("collectives.payload", baseline.collectives.payload, variant.collectives.payload,
            changes);
  AddFormat("attention.cache", baseline.attention_cache, variant.attention_cache, changes);
  return changes;
}

std::string UnquantizedExperts(const Model& model, const Plan& baseline, const Plan& variant) {
  const WeightFormat from = baseline.moe.weights.value_or(model.experts.format);
  const WeightFormat to = variant.moe.weights.value_or(model.experts.format);
  return from != to && to == WeightFormat::kBf16
             ? absl::StrCat("moe.weights: ", ToWord(from), " -> ", ToWord(to))
             : "";
}

bool HasComparableOutput(const Plan& baseline, const Plan& variant, Fidelity fidelity) {
  const Plan::Parallel& from = baseline.parallel;
  const Plan::Parallel& to = variant.parallel;
  return baseline.speculative.draft_tokens == variant.speculative.draft_tokens &&
         from.data == to.data && from.attention == to.attention &&
         (fidelity != Fidelity::kShard || from == to);
}

}  // namespace lastflop
