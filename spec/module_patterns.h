#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "re2/re2.h"

namespace lastflop {

// Which modules of a checkpoint a quantization block names, in the spellings that are published:
//   lm_head, mlp.gate         a module, or the modules inside it, wherever it stands
//   re:.*self_attn.*          a regular expression, matched from the start of the name
//   model.layers.*.self_attn  with * for anything, matched from the start of the name
// Safe to read from any thread after Add().
class ModulePatterns {
 public:
  // InvalidArgument for a regular expression that is none, or that can be matched by backtracking
  // only: (?!...), (?<=...), \1.
  absl::Status Add(absl::string_view pattern);

  // Whether a pattern names the module, e.g. "layers.3.mlp.experts.0.up_proj". What stands before
  // the layers differs between checkpoints ("model.", "language_model.model."): all are tried.
  bool Matches(absl::string_view module) const;

  bool empty() const { return names_.empty() && regexes_.empty(); }

 private:
  bool MatchesName(const std::string& name) const;

  std::set<std::string> names_;
  std::vector<std::unique_ptr<RE2>> regexes_;  // Time linear in the name, whatever they say.
};

}  // namespace lastflop
