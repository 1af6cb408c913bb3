#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/flags.h"
#include "common/campaign.h"

namespace lastflop {

struct LoadedCampaign {
  Campaign campaign;
  std::string source_yaml;
};

// Which layers a plan has to have room for. A prediction prices every layer of the model whatever
// model.layers keeps of it for a measurement.
enum class LayersLoaded { kAsAsked, kAll };

// Reads and validates the campaign file with its overrides, and everything that it names, and holds
// its plans against the model. InvalidArgument: every error of the file, a line each, as
// `FILE:LINE:COLUMN: path: message`.
absl::StatusOr<LoadedCampaign> LoadCampaign(const CampaignFlags& flags,
                                            LayersLoaded layers = LayersLoaded::kAsAsked);

// InvalidArgument where workers of `backend` ("cpu", "cuda") cannot measure at the fidelity that
// the campaign asks for.
absl::Status CheckFidelity(const Campaign& campaign, absl::string_view backend);

}  // namespace lastflop
