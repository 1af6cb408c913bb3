#include "common/campaign.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lastflop {

std::string Routing::Label() const {
  std::string label(ToWord(distribution));
  if (distribution == Distribution::kZipf) {
    absl::StrAppend(&label, " ", exponent);
  } else if (distribution == Distribution::kTrace) {
    absl::StrAppend(&label, " ", trace_file);
  }
  return label;
}

std::string Routing::LabelWithSeed() const { return absl::StrCat(Label(), " seed ", seed); }

std::string Point::Label() const {
  return absl::StrCat(ToWord(phase), " b", batch, " c", context, tag.empty() ? "" : " ", tag);
}

int64_t Point::num_tokens() const { return phase == Phase::kDecode ? batch : batch * context; }

}  // namespace lastflop
