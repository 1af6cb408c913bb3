#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/machine.h"
#include "common/plan.h"
#include "step/make_step.h"
#include "step/op.h"
#include "step/routing.h"

// The steps that ceilings compare: under expected routing, on the rank that bounds a step.
namespace lastflop {

// Expected routing, each sampled once. One model; one thread at a time.
class ExpectedLoads {
 public:
  // `tokens` under `routing` over `expert_groups`, as the rank sees them that bounds a step from
  // below. Where each rank has a device, that is the most loaded one; ranks that share a host's
  // memory bandwidth are done when all of them together are, so it is the mean one. The popularity
  // of a trace is told by its address.
  absl::StatusOr<ExpertLoad> OfBoundingRank(const Model& model, const Routing& routing,
                                            int64_t tokens, int64_t expert_groups,
                                            int64_t opportunistic_keep, bool shares_bandwidth);

 private:
  struct Sampled {
    SampledPairs pairs;
    std::map<int64_t, ExpectedLoad> loads;  // By expert groups.
  };

  // Routing, tokens, opportunistic_keep.
  using Key = std::tuple<Distribution, double, uint64_t, const void*, int64_t, int64_t>;
  std::map<Key, Sampled> sampled_;
};

// Steps of a campaign's plans, layers that are alike built once. One thread at a time.
class ExpectedSteps {
 public:
  // Both outlive it, and do not change meanwhile.
  ExpectedSteps(const Campaign& campaign, const Machine& machine)
      : campaign_(campaign), machine_(machine) {}

  // Of the rank that bounds the step. InvalidArgument: an infeasible plan or point, with the
  // arithmetic (step/make_step.h).
  absl::StatusOr<Step> Make(const Plan& plan, const Point& point);

  // The same, remembered until a point is asked with another plan: the trials of a round have one
  // baseline. `point` is the same object for the same point.
  absl::StatusOr<const Step*> OfBaseline(const Plan& plan, const Point& point);

  // What one rank of `plan` may count on. Valid as long as this.
  const Machine& MachineOfRank(const Plan& plan);

  const Campaign& campaign() const { return campaign_; }

 private:
  struct Remembered {
    Plan plan;
    absl::StatusOr<Step> step;
  };

  const Campaign& campaign_;  // Outlives this.
  const Machine& machine_;    // Outlives this.
  ExpectedLoads loads_;
  std::map<const Point*, Remembered> baselines_;
  std::map<int64_t, Machine> parts_;  // By ranks at once.
};

}  // namespace lastflop
