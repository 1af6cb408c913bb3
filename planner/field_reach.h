#pragma once

#include <set>

#include "absl/strings/string_view.h"
#include "common/words.h"

namespace lastflop {

// What of a step a changed field of the plan may make faster, as far as shapes and work of ops do
// not show it.
struct FieldReach {
  enum class Kind {
    kOps,      // Ops show it by their shape or work: nothing beside those.
    kApart,    // Priced apart: drafts, pinned bytes.
    kBounded,  // Ops of `categories` too, down to their floors.
    kHidden,   // Ops of `categories` may run behind others, and count nothing.
    kGaps,     // Time that no op claims.
    kAnything  // The whole step: nothing bounds it.
  };
  Kind kind = Kind::kAnything;
  std::set<OpCategory> categories;
};

// `path` as common/plan_fields.cc names it, `to` the variant's value. kAnything for unknown paths.
FieldReach ReachOf(absl::string_view path, absl::string_view to);

}  // namespace lastflop
