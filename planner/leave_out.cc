#include "planner/leave_out.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lastflop {

std::vector<AcceptedIntervention> Without(std::span<const AcceptedIntervention> accepted,
                                          size_t index) {
  std::vector<AcceptedIntervention> rest(accepted.begin(), accepted.end());
  rest.erase(rest.begin() + static_cast<ptrdiff_t>(index));
  return rest;
}

std::string WhyNotLeftOut(const Campaign& campaign, std::span<const AcceptedIntervention> accepted,
                          size_t index) {
  const AcceptedIntervention& one = accepted[index];
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (i == index) {
      continue;
    }
    for (const std::string& needed : NeedsOf(campaign, accepted[i].id)) {
      if (needed == one.id ||
          std::find(one.together.begin(), one.together.end(), needed) != one.together.end()) {
        return absl::StrCat("cannot be left out: ", accepted[i].id, " needs ", needed);
      }
    }
  }
  if (index + 1 == accepted.size()) {
    return absl::StrCat("its confirmation in round ", one.round);
  }
  return "";
}

}  // namespace lastflop
