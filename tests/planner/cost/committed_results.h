#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/plan.h"

// Campaigns as `lastflop export` wrote them under experiments/results, as far as predictions are
// held against them.
namespace lastflop {

struct CommittedPoint {
  Point point;  // Zipf routing, as all committed campaigns have.
  double step_us = 0;
  std::map<std::string, double> us_of_op;  // All layers together, by the names of Step.
};

struct CommittedIntervention {
  std::string id;
  std::vector<Plan> plans;       // By point.
  std::vector<double> speedups;  // In tokens, by point.
  double low = 0;                // Of the interval of the speedup in the mix.
  double high = 0;
};

struct CommittedResult {
  std::string model;  // "kimi-k2.5"
  Plan baseline;
  std::vector<CommittedPoint> points;
  std::vector<CommittedIntervention> interventions;  // Those measured at every point.
};

// `name` under experiments/results: "h200/kimi-k2.5-int4-decode.json". NotFound, or DataLoss where
// the file lacks what is read of it.
absl::StatusOr<CommittedResult> ReadCommittedResult(const std::string& name);

}  // namespace lastflop
