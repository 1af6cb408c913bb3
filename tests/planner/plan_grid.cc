#include "tests/planner/plan_grid.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

struct Axis {
  const char* path;
  std::vector<const char*> values;  // The first is the baseline's.
};

// 43,200 combinations, of which the first ones differ most.
const std::vector<Axis>& Axes() {
  static const auto& axes = *new std::vector<Axis>{
      {"moe.weights", {"model", "nvfp4", "int4_g128", "bf16", "mxfp4"}},
      {"parallel.expert", {"1", "8", "4", "2"}},
      {"collectives.all_reduce", {"auto", "one_shot", "two_shot"}},
      {"launch.graph", {"none", "full", "piecewise"}},
      {"moe.expert_activation", {"top_k", "opportunistic:4", "opportunistic:6"}},
      {"attention.cache", {"bf16", "fp8"}},
      {"collectives.fuse_norm", {"false", "true"}},
      {"moe.kernel", {"grouped", "fused"}},
      {"overlap", {"none", "single_batch:32", "two_batch"}},
      {"decode.speculative.draft_tokens", {"0", "3"}},
      {"collectives.fuse_finalize", {"false", "true"}},
      {"launch.host_us_per_step", {"0", "20"}}};
  return axes;
}

// Number `index` of the combinations, without what is as in the baseline.
std::vector<FieldSetting> PatchOf(int64_t index) {
  std::vector<FieldSetting> patch;
  for (const Axis& axis : Axes()) {
    const auto num_values = static_cast<int64_t>(axis.values.size());
    if (index % num_values != 0) {
      patch.push_back({axis.path, axis.values[static_cast<size_t>(index % num_values)]});
    }
    index /= num_values;
  }
  return patch;
}

}  // namespace

Campaign PlanGrid(int64_t num_interventions, int64_t num_points) {
  Campaign campaign;
  campaign.name = "grid";
  campaign.model = KimiModel();
  campaign.machine_auto = false;
  campaign.machine = H200x8();
  campaign.baseline.parallel.tensor = 8;
  campaign.baseline.speculative.acceptance = 0.7;
  campaign.baseline.speculative.draft_cost = 0.05;
  campaign.economics.gpu_hours = 50000;
  campaign.budget.effort_hours = 120;
  for (int64_t i = 0; i < num_points; ++i) {
    Point point;
    point.batch = 2 + 5 * (i % 20);
    point.context = 512 * (1 + i / 20);
    point.time_share = 1 / static_cast<double>(num_points);
    point.routing.distribution = Distribution::kZipf;
    campaign.points.push_back(point);
  }
  for (int64_t i = 1; i <= num_interventions; ++i) {
    Intervention intervention;
    intervention.id = absl::StrCat("plan-", i);
    intervention.effort = {
        .low_hours = 1, .likely_hours = 4 + static_cast<double>(i % 13), .high_hours = 40};
    intervention.set = PatchOf(i);
    if (i % 10 == 0) {
      intervention.claim = Claim{.low = 1.2, .source = "a blog"};
    }
    if (i % 7 == 0) {
      intervention.switchable = Switchable::kPerBatch;
    }
    campaign.interventions.push_back(intervention);
  }
  return campaign;
}

}  // namespace lastflop
