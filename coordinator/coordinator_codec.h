#pragma once

#include "coordinator/outgoing.h"
#include "coordinator/worker_table.h"
#include "db/change.h"
#include "db/worker_store.h"
#include "lastflop/v1/campaign.pb.h"
#include "lastflop/v1/worker.pb.h"

// Translation of what only the coordinator says and hears; the rest is proto/codec.h.
namespace lastflop {

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message);
WorkerHello FromProto(const v1::Hello& message);
v1::WatchEvent ToProto(const CampaignEvent& event);
v1::LogEntry ToProto(const LogLine& line);

}  // namespace lastflop
