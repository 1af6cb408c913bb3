#include "common/campaign_json.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json_archive.h"
#include "common/json_members.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

template <typename T>
std::string Dump(const T& value) {
  // Text that is no UTF-8 cannot be JSON; spec/ refuses it, and here it must not throw.
  return JsonWriter::Write(value).dump(-1, ' ', /*ensure_ascii=*/false,
                                       JsonWriter::Json::error_handler_t::replace);
}

template <typename T>
absl::StatusOr<T> Parse(absl::string_view text, const char* name) {
  const JsonReader::Json json =
      JsonReader::Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": this is no JSON"));
  }
  T value;
  LASTFLOP_RETURN_IF_ERROR(JsonReader::Read(json, name, value));
  return value;
}

}  // namespace

std::string ToJson(const Campaign& campaign) { return Dump(campaign); }
absl::StatusOr<Campaign> CampaignFromJson(absl::string_view text) {
  return Parse<Campaign>(text, "campaign");
}

std::string ToJson(const Machine& machine) { return Dump(machine); }
absl::StatusOr<Machine> MachineFromJson(absl::string_view text) {
  return Parse<Machine>(text, "machine");
}

std::string ToJson(const Model& model) { return Dump(model); }
absl::StatusOr<Model> ModelFromJson(absl::string_view text) { return Parse<Model>(text, "model"); }

std::string ToJson(const TrialSpec& trial) { return Dump(trial); }
absl::StatusOr<TrialSpec> TrialSpecFromJson(absl::string_view text) {
  return Parse<TrialSpec>(text, "trial");
}

}  // namespace lastflop
