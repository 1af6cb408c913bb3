#pragma once

#include <atomic>
#include <string>

#include "proto/channel_client.h"
#include "worker/child_client.h"

namespace lastflop {

struct WorkerOptions {
  ChannelOptions channel;
  std::string device;  // "cpu:0" or "cuda:0"
  std::string id;      // "": the coordinator names it.
  std::string token;   // Sent in Hello; "" without.
  bool allows_commands = false;
  PluginOptions plugins;
};

// The agent: keeps a stream to the coordinator, runs the leases that come over it in a child
// process, one at a time, and reports until acknowledged. When the stream breaks, the attempt at
// work goes on and the agent connects again. Blocks until `stop` is set or the coordinator shuts it
// down; OK then. FailedPrecondition: the coordinator refused this worker.
absl::Status RunWorker(const WorkerOptions& options, const std::atomic<bool>& stop);

}  // namespace lastflop
