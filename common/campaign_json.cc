#include "common/campaign_json.h"

#include <string>

#include "common/json_archive.h"
#include "common/json_members.h"

namespace lastflop {
namespace {

template <typename T>
std::string Dump(const T& value) {
  // Text that is no UTF-8 cannot be JSON; spec/ refuses it, and here it must not throw.
  return JsonWriter::Write(value).dump(-1, ' ', /*ensure_ascii=*/false,
                                       JsonWriter::Json::error_handler_t::replace);
}

}  // namespace

std::string ToJson(const Campaign& campaign) { return Dump(campaign); }
absl::StatusOr<Campaign> CampaignFromJson(absl::string_view text) {
  return ParseJson<Campaign>(text, "campaign");
}

std::string ToJson(const Machine& machine) { return Dump(machine); }
absl::StatusOr<Machine> MachineFromJson(absl::string_view text) {
  return ParseJson<Machine>(text, "machine");
}

std::string ToJson(const Model& model) { return Dump(model); }
absl::StatusOr<Model> ModelFromJson(absl::string_view text) {
  return ParseJson<Model>(text, "model");
}

std::string ToJson(const TrialSpec& trial) { return Dump(trial); }
absl::StatusOr<TrialSpec> TrialSpecFromJson(absl::string_view text) {
  return ParseJson<TrialSpec>(text, "trial");
}

}  // namespace lastflop
