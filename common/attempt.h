#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "common/plan.h"

// What a gang is told: the C++ twins of lastflop/v1/attempt.proto.
namespace lastflop {

// One attempt: a trial in one launch.
struct AttemptSpec {
  std::string attempt_id;
  std::string trial_id;
  std::string intervention_id;
  int point_index = 0;
  Plan baseline;
  Plan variant;
  uint64_t seed = 0;      // Of draws and checks; the same on every rank.
  int64_t min_pairs = 1;  // In this launch.
  int64_t max_pairs = 100000;
  std::chrono::milliseconds max_time{1000};  // Timed sampling in this launch.
  double half_width = 0.005;                 // Relative, wanted of the trial's interval.
  double confidence = 0.95;
  bool breakdown = false;
  std::chrono::milliseconds deadline{600000};  // From the start of the attempt, setup included.
};

// What all attempts of one launch share. A gang keeps its children while `launch_key` stays.
struct LaunchSpec {
  std::string launch_key;
  std::string campaign_id;
  int launch = 0;
  std::string campaign_json;  // common/campaign_json.h.
  uint64_t data_seed = 0;
  std::map<std::string, std::string> env;  // process.env: needs fresh children.
};

// A worker's place in the gang of an attempt.
struct GangPlace {
  int rank = 0;
  int num_ranks = 1;
  std::string rendezvous;  // Unix socket path on the host; rank 0 listens.
  bool shard = false;      // One worker stands for one rank of num_ranks.
};

}  // namespace lastflop
