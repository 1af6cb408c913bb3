#include "common/campaign.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lastflop {

std::string Point::Label() const { return absl::StrCat(ToWord(phase), " b", batch, " c", context); }

int64_t Point::num_tokens() const { return phase == Phase::kDecode ? batch : batch * context; }

}  // namespace lastflop
