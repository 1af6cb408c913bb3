#include "tests/planner/cost/committed_results.h"

#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace lastflop {
namespace {

using Json = nlohmann::json;

// The plan that a trial of `intervention` at `point` ran; null where none is done.
const Json* FindPlan(const Json& trials, const std::string& intervention,
                     const std::string& point) {
  for (const Json& trial : trials) {
    if (trial.at("intervention") == intervention && trial.at("point") == point &&
        trial.at("state") == "done") {
      return &trial.at("variant_plan");
    }
  }
  return nullptr;
}

absl::Status AddIntervention(const Json& line, const Json& trials, CommittedResult& result) {
  CommittedIntervention intervention;
  intervention.id = line.at("id").get<std::string>();
  for (const Json& point : line.at("points")) {
    const Json* plan = FindPlan(trials, intervention.id, point.at("point").get<std::string>());
    const Json& speedup = point.at("speedup");
    if (speedup.is_null() || speedup.at("estimate").is_null() || plan == nullptr) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(const Plan parsed, ParseCanonicalText(plan->get<std::string>()));
    intervention.plans.push_back(parsed);
    intervention.speedups.push_back(speedup.at("estimate").get<double>());
  }
  if (line.at("speedup").at("low").is_null()) {
    return absl::OkStatus();  // per_batch, and on at no point.
  }
  intervention.low = line.at("speedup").at("low").get<double>();
  intervention.high = line.at("speedup").at("high").get<double>();
  result.interventions.push_back(std::move(intervention));
  return absl::OkStatus();
}

absl::StatusOr<CommittedResult> FromJson(const Json& json) {
  CommittedResult result;
  result.model = json.at("environment").at("model").get<std::string>();
  const Json& trials = json.at("trials");
  LASTFLOP_ASSIGN_OR_RETURN(
      result.baseline, ParseCanonicalText(trials.at(0).at("baseline_plan").get<std::string>()));
  for (const Json& line : json.at("baseline")) {
    CommittedPoint point;
    point.point.batch = line.at("batch").get<int64_t>();
    point.point.context = line.at("context").get<int64_t>();
    point.point.routing.distribution = Distribution::kZipf;
    point.step_us = line.at("step_us").get<double>();
    for (const Json& op : line.at("ops")) {
      point.us_of_op[op.at("op").get<std::string>()] = op.at("us").get<double>();
    }
    result.points.push_back(std::move(point));
  }
  for (const Json& line : json.at("ranking")) {
    LASTFLOP_RETURN_IF_ERROR(AddIntervention(line, trials, result));
  }
  return result;
}

}  // namespace

absl::StatusOr<CommittedResult> ReadCommittedResult(const std::string& name) {
  const std::string path = absl::StrCat(LASTFLOP_RESULTS_DIR, "/", name);
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  try {
    return FromJson(Json::parse(file));
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace lastflop
