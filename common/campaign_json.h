#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/trial.h"

// The one serial form of a resolved campaign and its parts: what the wire carries, the database
// keeps and an export contains. A round trip loses nothing; an unknown key or word is an error, so
// that an older binary refuses what it does not know; a key that is absent keeps its default.
namespace lastflop {

std::string ToJson(const Campaign& campaign);
absl::StatusOr<Campaign> CampaignFromJson(absl::string_view text);

std::string ToJson(const Machine& machine);
absl::StatusOr<Machine> MachineFromJson(absl::string_view text);

std::string ToJson(const Model& model);
absl::StatusOr<Model> ModelFromJson(absl::string_view text);

std::string ToJson(const TrialSpec& trial);
absl::StatusOr<TrialSpec> TrialSpecFromJson(absl::string_view text);

}  // namespace lastflop
