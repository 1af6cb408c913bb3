#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign_results.h"
#include "lastflop/v1/campaign.grpc.pb.h"

namespace lastflop {

// Calls Fetch and assembles its pieces. `campaign_id` as in ShowRequest. `token` as in
// AddToken(). NotFound, Unavailable as the coordinator or the channel says.
absl::StatusOr<CampaignResults> FetchCampaign(v1::CampaignService::StubInterface& stub,
                                              const std::string& campaign_id,
                                              const std::string& token = "");

// Puts the coordinator's token on a call; "" puts none.
void AddToken(const std::string& token, grpc::ClientContext& context);

}  // namespace lastflop
