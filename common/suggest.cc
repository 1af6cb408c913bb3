#include "common/suggest.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lastflop {
namespace {

constexpr size_t kLongestName = 100;  // Longer text is no mistyped name, and the table is n x m.

std::string Normalize(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
}

// Letters to insert, drop, change or swap with their neighbour.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string NearestName(absl::string_view name, const std::vector<absl::string_view>& candidates) {
  if (name.empty() || name.size() > kLongestName) {
    return "";
  }
  const std::string wanted = Normalize(name);
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  absl::string_view best;
  for (const absl::string_view candidate : candidates) {
    const std::string normalized = Normalize(candidate);
    if (normalized == wanted) {
      return std::string(candidate);
    }
    size_t distance = EditDistance(wanted, normalized);
    if (absl::EndsWith(normalized, absl::StrCat(".", wanted))) {
      distance = 1;
    } else if (distance >= std::min(wanted.size(), normalized.size())) {
      continue;  // Nothing of one of the two words is left.
    }
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string DidYouMean(absl::string_view name, const std::vector<absl::string_view>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace lastflop
