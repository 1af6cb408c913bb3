#include "planner/expected_steps.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "step/layout.h"

namespace lastflop {
namespace {

constexpr int kDraws = 4;
// Routing of more tokens is sampled with so many: every expert is touched long before.
constexpr int64_t kMostSampledTokens = 4096;

}  // namespace

absl::StatusOr<ExpertLoad> ExpectedLoads::OfBoundingRank(const Model& model, const Routing& routing,
                                                         int64_t tokens, int64_t expert_groups,
                                                         int64_t opportunistic_keep,
                                                         bool shares_bandwidth) {
  const bool is_trace = routing.distribution == Distribution::kTrace;
  const int64_t num_sampled = std::min(tokens, kMostSampledTokens);
  const Key key{routing.distribution,          routing.exponent, routing.seed,
                is_trace ? &routing : nullptr, num_sampled,      opportunistic_keep};
  auto sampled = sampled_.find(key);
  if (sampled == sampled_.end()) {
    LASTFLOP_ASSIGN_OR_RETURN(SampledPairs pairs,
                              SamplePairs(model, routing, num_sampled, opportunistic_keep, kDraws));
    sampled = sampled_.emplace(key, Sampled{std::move(pairs), {}}).first;
  }
  auto& loads = sampled->second.loads;
  auto expected = loads.find(expert_groups);
  if (expected == loads.end()) {
    LASTFLOP_ASSIGN_OR_RETURN(const ExpectedLoad load,
                              LoadOfPairs(sampled->second.pairs, expert_groups));
    expected = loads.emplace(expert_groups, load).first;
  }
  ExpertLoad load =
      shares_bandwidth ? expected->second.mean_rank : expected->second.most_loaded_rank;
  load.pairs *= static_cast<double>(tokens) / static_cast<double>(num_sampled);
  return load;
}

absl::StatusOr<Step> ExpectedSteps::Make(const Plan& plan, const Point& point) {
  const Model& model = campaign_.model;
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPoint(model, plan, point));
  const Layout layout = MakeLayout(model, plan, /*rank=*/0);
  const int64_t replicas = layout.data_attention ? 1 : layout.num_replicas;
  const int64_t num_tokens =
      SequencesOfReplica(point.batch, replicas, 0) * QueryTokens(plan, point);
  StepOptions options;
  options.layers_kept = campaign_.layers_kept;
  options.distinct_layers_only = true;
  options.is_checked = true;
  LASTFLOP_ASSIGN_OR_RETURN(
      options.load, loads_.OfBoundingRank(model, point.routing, num_tokens, layout.expert_groups,
                                          plan.moe.opportunistic_keep, machine_.backend == "cpu"));
  return MakeStep(model, plan, point, /*rank=*/0, options);
}

absl::StatusOr<const Step*> ExpectedSteps::OfBaseline(const Plan& plan, const Point& point) {
  auto found = baselines_.find(&point);
  if (found == baselines_.end()) {
    found = baselines_.emplace(&point, Remembered{plan, Make(plan, point)}).first;
  } else if (found->second.plan != plan) {
    found->second = Remembered{plan, Make(plan, point)};
  }
  const absl::StatusOr<Step>& step = found->second.step;
  LASTFLOP_RETURN_IF_ERROR(step.status());
  return &*step;
}

const Machine& ExpectedSteps::MachineOfRank(const Plan& plan) {
  const int64_t num_ranks = RanksAtOnce(plan);
  const auto [found, is_new] = parts_.try_emplace(num_ranks);
  if (is_new) {
    found->second = PartOfRank(machine_, num_ranks);
  }
  return found->second;
}

}  // namespace lastflop
