#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lastflop {

// The candidate nearest to `name`, or "" when none is near enough to be what was meant. Case and
// `-` against `_` do not count; a candidate that ends in ".name" is near; else so few letters are
// inserted, dropped, changed or swapped that a typing mistake explains them.
std::string NearestName(absl::string_view name, const std::vector<absl::string_view>& candidates);

// `; did you mean "NAME"?` for the end of a message, or "".
std::string DidYouMean(absl::string_view name, const std::vector<absl::string_view>& candidates);

}  // namespace lastflop
