#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"

namespace lastflop {

// What the reader asks of rooms that spec/ does not see. An empty function asks nothing.
struct CampaignHooks {
  // Reads the model file.
  std::function<absl::StatusOr<Model>(const std::string& path)> read_model;
  // Whether a plan divides the campaign's model (InvalidArgument with the arithmetic).
  std::function<absl::Status(const Campaign&, const Plan&)> check_plan;
  // Whether a plan that divides the model makes sense at a point: batch, memory.
  std::function<absl::Status(const Campaign&, const Plan&, const Point&)> check_point;
  // Names of the ops of a plan's steps, for claims about op:NAME.
  std::function<absl::StatusOr<std::vector<std::string>>(const Campaign&, const Plan&)> op_names;
  // Where machines are that do not lie beside the campaign; "" for nowhere.
  std::string machines_directory;
};

// Reads a campaign with everything it names: model, machine and traces. The result stands alone;
// no file is needed after this. `overrides` are --set texts (spec/override.h).
//
// InvalidArgument: all errors that were found, one `FILE:LINE:COLUMN: path: message` a line, among
// them a baseline that is infeasible everywhere. An intervention, a choice or a point that is
// infeasible is kept in Campaign::infeasible with its reason. NotFound when the file is not there.
absl::StatusOr<Campaign> ReadCampaignFile(const std::string& path,
                                          const std::vector<std::string>& overrides,
                                          const CampaignHooks& hooks);

// Largest campaign file, in bytes.
inline constexpr size_t kMaxCampaignBytes = size_t{4} << 20;

// The same of text; `directory` is where the paths in it start.
absl::StatusOr<Campaign> ReadCampaign(absl::string_view text, const std::string& file_name,
                                      const std::string& directory,
                                      const std::vector<std::string>& overrides,
                                      const CampaignHooks& hooks);

}  // namespace lastflop
