#pragma once

#include <string>

#include "coordinator/event_bus.h"
#include "db/database.h"
#include "lastflop/v1/campaign.grpc.pb.h"

// The two streams of CampaignService that wait for what is not there yet.
namespace lastflop {

// Stored events after `after_sequence`, then live ones with progress between them, until the
// campaign has ended and all is sent. Internal when the coordinator can no longer store.
grpc::Status WatchCampaign(grpc::ServerContext& context, const EventBus& events, Database& database,
                           const std::string& campaign_id, int64_t after_sequence,
                           grpc::ServerWriter<v1::WatchEvent>& writer);

// Log lines of a source ("" for all), with `follow` until the client leaves.
grpc::Status WatchLogs(grpc::ServerContext& context, const EventBus& events, Database& database,
                       const std::string& source, bool follow,
                       grpc::ServerWriter<v1::LogEntry>& writer);

}  // namespace lastflop
