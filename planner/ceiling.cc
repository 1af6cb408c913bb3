#include "planner/ceiling.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/plan.h"
#include "common/status_macros.h"
#include "planner/field_reach.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "step/routing.h"

namespace lastflop {
namespace {

constexpr int kDraws = 4;
// Routing of more tokens is sampled with so many: every expert is touched long before.
constexpr int64_t kMostSampledTokens = 4096;

using OpsByName = std::map<std::string, std::vector<const Op*>>;

OpsByName GroupByName(const Step& step) {
  OpsByName ops;
  for (const Op& op : step.ops) {
    ops[op.name].push_back(&op);
  }
  return ops;
}

bool SameWork(const Work& a, const Work& b) {
  return a.flop == b.flop && a.weight_bytes == b.weight_bytes &&
         a.activation_bytes == b.activation_bytes && a.cache_bytes == b.cache_bytes &&
         a.link_bytes == b.link_bytes;
}

// Work is compared too: fewer experts a batch leave every shape as it is.
bool SameOps(const std::vector<const Op*>& a, const std::vector<const Op*>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Op* x, const Op* y) {
    return x->layer == y->layer && x->shape == y->shape && SameWork(x->work, y->work);
  });
}

// Names of ops that the patch changes, adds or removes.
std::set<std::string> TouchedNames(const OpsByName& baseline, const OpsByName& variant) {
  std::set<std::string> touched;
  for (const auto& [name, ops] : baseline) {
    const auto found = variant.find(name);
    if (found == variant.end() || !SameOps(ops, found->second)) {
      touched.insert(name);
    }
  }
  for (const auto& [name, ops] : variant) {
    if (!baseline.contains(name)) {
      touched.insert(name);
    }
  }
  return touched;
}

bool IsPart(absl::string_view of, OpCategory category, absl::string_view name) {
  if (of == "step") {
    return true;
  }
  if (of == "moe") {
    return category == OpCategory::kMoe || category == OpCategory::kDequant;
  }
  return absl::StripPrefix(of, "op:") == name;
}

// How many of the model's layers an op of `step` stands for.
double ScaleOf(const CeilingInput& input, const Step& step, const Op& op) {
  if (op.layer < 0) {
    return 1;
  }
  const LayerKind kind = input.layer_kinds[static_cast<size_t>(op.layer)];
  return kind == LayerKind::kDense ? step.dense_layer_scale : step.moe_layer_scale;
}

double FloorOfTouched(const CeilingInput& input, const OpsByName& variant,
                      const std::set<std::string>& touched, absl::string_view of) {
  double floor_us = 0;
  for (const std::string& name : touched) {
    const auto found = variant.find(name);
    if (found == variant.end() || input.hidden.contains(name)) {
      continue;
    }
    for (const Op* op : found->second) {
      if (IsPart(of, op->category, name)) {
        floor_us += FloorMicros(*op, input.machine) * ScaleOf(input, input.variant, *op);
      }
    }
  }
  return floor_us;
}

struct PartTime {
  double total_us = 0;
  double touched_us = 0;
  double unclaimed_us = 0;
};

PartTime MeasuredTime(const StepBreakdown& breakdown, const std::set<std::string>& touched,
                      absl::string_view of) {
  PartTime time;
  for (const OpShare& op : breakdown.ops) {
    if (!IsPart(of, op.category, op.op)) {
      continue;
    }
    time.total_us += op.us;
    if (touched.contains(op.op)) {
      time.touched_us += op.us;
    } else if (op.category == OpCategory::kHost) {
      time.unclaimed_us += op.us;
    }
  }
  return time;
}

double TouchedOpShare(const Step& step, const std::set<std::string>& touched) {
  const auto num_touched =
      std::count_if(step.ops.begin(), step.ops.end(),
                    [&touched](const Op& op) { return touched.contains(op.name); });
  return step.ops.empty() ? 0
                          : static_cast<double>(num_touched) / static_cast<double>(step.ops.size());
}

absl::StatusOr<Step> ExpectedStep(const Campaign& campaign, const Machine& machine,
                                  const Plan& plan, const Point& point, ExpectedLoads& loads) {
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(campaign.model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPoint(campaign.model, plan, point));
  const Layout layout = MakeLayout(campaign.model, plan, /*rank=*/0);
  const int64_t replicas = layout.data_attention ? 1 : layout.num_replicas;
  const int64_t num_tokens =
      SequencesOfReplica(point.batch, replicas, 0) * QueryTokens(plan, point);
  StepOptions options;
  options.layers_kept = campaign.layers_kept;
  LASTFLOP_ASSIGN_OR_RETURN(
      options.load, loads.OfBoundingRank(campaign.model, point, num_tokens, layout.expert_groups,
                                         plan.moe.opportunistic_keep, machine.backend == "cpu"));
  return MakeStep(campaign.model, plan, point, /*rank=*/0, options);
}

// The least time that a read of everything a pin may hold takes. Devices let three quarters of
// their L2 persist at most (an H200 37 of 60 MB). 0 where there is nothing to pin.
double PinMicros(const Machine& machine, const Plan& plan) {
  constexpr double kPersistingShare = 0.75;
  if (!plan.moe.l2_pin.has_value() || machine.backend == "cpu" || machine.l2_bytes <= 0) {
    return 0;
  }
  const double bytes =
      plan.moe.l2_pin->share * kPersistingShare * static_cast<double>(machine.l2_bytes);
  return ColdReadMicros(machine, bytes).value_or(0.0);
}

void AddNames(const Step& step, const std::set<OpCategory>& categories,
              std::set<std::string>& names) {
  for (const Op& op : step.ops) {
    if (categories.contains(op.category)) {
      names.insert(op.name);
    }
  }
}

// What the changed fields reach beyond ops whose shape or work they change. Where one reaches
// anything, the variant may be faster than any sum of ops says.
absl::Status AddReach(const Plan& baseline, const Plan& variant, CeilingInput& input) {
  input.is_all_reached = true;
  for (const PlanDifference& difference : DiffPlans(baseline, variant)) {
    const FieldReach reach = ReachOf(difference.path, difference.to);
    switch (reach.kind) {
      case FieldReach::Kind::kOps:
      case FieldReach::Kind::kApart:
        input.is_all_reached = false;
        break;
      case FieldReach::Kind::kHidden:
        AddNames(input.baseline, reach.categories, input.hidden);
        break;
      case FieldReach::Kind::kBounded:
        AddNames(input.baseline, reach.categories, input.bounded);
        AddNames(input.variant, reach.categories, input.bounded);
        break;
      case FieldReach::Kind::kGaps:
        input.gaps_may_go = true;
        break;
      case FieldReach::Kind::kAnything:
        return absl::FailedPreconditionError(
            absl::StrCat(difference.path, " acts outside of the ops, which no floor bounds"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExpertLoad> ExpectedLoads::OfBoundingRank(const Model& model, const Point& point,
                                                         int64_t tokens, int64_t expert_groups,
                                                         int64_t opportunistic_keep,
                                                         bool shares_bandwidth) {
  const auto key =
      std::make_tuple(&point, tokens, expert_groups, opportunistic_keep, shares_bandwidth);
  if (const auto found = loads_.find(key); found != loads_.end()) {
    return found->second;
  }
  const int64_t sampled = std::min(tokens, kMostSampledTokens);
  LASTFLOP_ASSIGN_OR_RETURN(
      const ExpectedLoad expected,
      EstimateLoad(model, point.routing, sampled, expert_groups, opportunistic_keep, kDraws));
  ExpertLoad load = shares_bandwidth ? expected.mean_rank : expected.most_loaded_rank;
  load.pairs *= static_cast<double>(tokens) / static_cast<double>(sampled);
  loads_[key] = load;
  return load;
}

Ceiling MakeCeiling(const CeilingInput& input, absl::string_view of) {
  const OpsByName variant = GroupByName(input.variant);
  std::set<std::string> touched = TouchedNames(GroupByName(input.baseline), variant);
  touched.insert(input.bounded.begin(), input.bounded.end());
  touched.insert(input.hidden.begin(), input.hidden.end());
  if (touched.empty() && !input.gaps_may_go && input.pin_us <= 0) {
    return input.is_all_reached ? Ceiling{1.0, "nothing of the step is what it acts on"}
                                : Ceiling{std::nullopt, "no op differs"};
  }
  if (of != "step" && !input.hidden.empty()) {
    return {std::nullopt, absl::StrCat("overlap moves time between ", of, " and the rest")};
  }
  const PartTime time = MeasuredTime(input.breakdown, touched, of);
  if (!(time.total_us > 0)) {
    return {std::nullopt, absl::StrCat("the breakdown does not show ", of)};
  }
  const double floor_us = std::min(FloorOfTouched(input, variant, touched, of), time.touched_us);
  const double gaps_us =
      time.unclaimed_us * (input.gaps_may_go ? 1 : TouchedOpShare(input.baseline, touched));
  const double draft_us = of == "step" ? input.draft_us : 0;
  const double pin_us = of == "step" || of == "moe" ? input.pin_us : 0;
  const double least_us =
      time.total_us - (time.touched_us - floor_us) - gaps_us - pin_us + draft_us;
  const double tokens = input.variant.tokens_per_step / input.baseline.tokens_per_step;
  if (!(least_us > 0) || !(tokens > 0)) {
    return {std::nullopt, absl::StrCat("all of ", of, " may go away")};
  }
  Ceiling ceiling;
  ceiling.speedup = time.total_us / least_us * tokens;
  ceiling.arithmetic = absl::StrFormat("%.1f / (%.1f", time.total_us, time.total_us);
  if (!touched.empty()) {
    absl::StrAppendFormat(&ceiling.arithmetic, " - (%.1f - %.1f)", time.touched_us, floor_us);
  }
  if (gaps_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " - %.1f gaps", gaps_us);
  if (pin_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " - %.1f pinned", pin_us);
  if (draft_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " + %.1f drafts", draft_us);
  absl::StrAppend(&ceiling.arithmetic, ")");
  if (tokens != 1) absl::StrAppendFormat(&ceiling.arithmetic, " * %.4g tokens", tokens);
  absl::StrAppendFormat(&ceiling.arithmetic, " = %.3f, us", *ceiling.speedup);
  if (!touched.empty()) {
    absl::StrAppend(&ceiling.arithmetic, "; touched: ", absl::StrJoin(touched, " "));
  }
  return ceiling;
}

absl::StatusOr<CeilingInput> PrepareCeiling(const Campaign& campaign, const Machine& machine,
                                            const Plan& baseline, const Plan& variant,
                                            const Point& point, const StepBreakdown& breakdown,
                                            ExpectedLoads& loads) {
  if (baseline.num_ranks() != variant.num_ranks() ||
      baseline.parallel.pipeline != variant.parallel.pipeline ||
      baseline.parallel.data != variant.parallel.data ||
      baseline.parallel.micro_batches != variant.parallel.micro_batches) {
    return absl::FailedPreconditionError(
        "ranks, stages or replicas differ, so steps do not compare op by op");
  }
  CeilingInput input;
  LASTFLOP_ASSIGN_OR_RETURN(input.baseline,
                            ExpectedStep(campaign, machine, baseline, point, loads));
  LASTFLOP_ASSIGN_OR_RETURN(input.variant, ExpectedStep(campaign, machine, variant, point, loads));
  LASTFLOP_RETURN_IF_ERROR(AddReach(baseline, variant, input));
  input.layer_kinds = campaign.model.layer_kinds;
  input.machine = PartOfRank(machine, RanksAtOnce(variant));
  input.breakdown = breakdown;
  if (!baseline.moe.l2_pin.has_value()) {
    input.pin_us = PinMicros(input.machine, variant);
  }
  if (point.phase == Phase::kDecode) {
    input.draft_us = static_cast<double>(variant.speculative.draft_tokens) *
                     variant.speculative.draft_cost * breakdown.step_us;
  }
  return input;
}

}  // namespace lastflop
