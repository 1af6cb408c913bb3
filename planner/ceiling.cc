#include "planner/ceiling.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/plan.h"
#include "common/status_macros.h"
#include "planner/cost/find_in_turn.h"
#include "planner/field_reach.h"
#include "step/floors.h"

namespace lastflop {
namespace {

bool SameWork(const Work& a, const Work& b) {
  return a.flop == b.flop && a.weight_bytes == b.weight_bytes &&
         a.activation_bytes == b.activation_bytes && a.cache_bytes == b.cache_bytes &&
         a.link_bytes == b.link_bytes;
}

// Work is compared too: fewer experts a batch leave every shape as it is.
bool IsSameOp(const Op& a, const Op& b) {
  return a.num_layers == b.num_layers && a.shape == b.shape && SameWork(a.work, b.work);
}

// OpNames in alphabetical order, each once. They are those of a step's ops, which outlives this.
class OpNames {
 public:
  void Add(absl::string_view name) { names_.push_back(name); }
  void Sort() {
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }
  bool Contain(absl::string_view name) const {
    return std::binary_search(names_.begin(), names_.end(), name);
  }
  bool are_none() const { return names_.empty(); }
  std::string Join() const { return absl::StrJoin(names_, " "); }

 private:
  std::vector<absl::string_view> names_;
};

void AddNames(const Step& step, const std::set<OpCategory>& categories, OpNames& names) {
  for (const Op& op : step.ops) {
    if (categories.contains(op.category)) {
      names.Add(op.name);
    }
  }
}

// Adds the names of ops that one arm has and the other has not, or not alike. An op is told by its
// name and layer.
void AddChangedNames(const Step& baseline, const Step& variant, OpNames& names) {
  const size_t num_ops = variant.ops.size();
  std::vector<bool> is_met(num_ops, false);
  size_t next = 0;
  for (const Op& op : baseline.ops) {
    const size_t at = FindInTurn(num_ops, next, [&](size_t i) {
      const Op& other = variant.ops[i];
      return !is_met[i] && other.layer == op.layer && other.name == op.name;
    });
    if (at < num_ops) {
      is_met[at] = true;
    }
    if (at == num_ops || !IsSameOp(op, variant.ops[at])) {
      names.Add(op.name);
    }
  }
  for (size_t i = 0; i < num_ops; ++i) {
    if (!is_met[i]) {
      names.Add(variant.ops[i].name);
    }
  }
}

// What may take less time in the variant, and what of it none at all, behind others.
struct Touched {
  OpNames names;
  OpNames hidden;
};

Touched TouchedOf(const CeilingInput& input) {
  Touched touched;
  AddNames(*input.baseline, input.hidden, touched.hidden);
  touched.names = touched.hidden;
  AddNames(*input.baseline, input.bounded, touched.names);
  AddNames(input.variant, input.bounded, touched.names);
  AddChangedNames(*input.baseline, input.variant, touched.names);
  touched.hidden.Sort();
  touched.names.Sort();
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
  return static_cast<double>(op.num_layers) *
         (kind == LayerKind::kDense ? step.dense_layer_scale : step.moe_layer_scale);
}

double FloorOfTouched(const CeilingInput& input, const Touched& touched, absl::string_view of) {
  double floor_us = 0;
  for (const Op& op : input.variant.ops) {
    if (IsPart(of, op.category, op.name) && touched.names.Contain(op.name) &&
        !touched.hidden.Contain(op.name)) {
      floor_us += FloorMicros(op, *input.machine) * ScaleOf(input, input.variant, op);
    }
  }
  return floor_us;
}

struct PartTime {
  double total_us = 0;
  double touched_us = 0;
  double unclaimed_us = 0;
};

PartTime MeasuredTime(const StepBreakdown& breakdown, const OpNames& touched,
                      absl::string_view of) {
  PartTime time;
  for (const OpShare& op : breakdown.ops) {
    if (!IsPart(of, op.category, op.op)) {
      continue;
    }
    time.total_us += op.us;
    if (touched.Contain(op.op)) {
      time.touched_us += op.us;
    } else if (op.category == OpCategory::kHost) {
      time.unclaimed_us += op.us;
    }
  }
  return time;
}

// Of the ops that run, layer by layer.
double TouchedOpShare(const Step& step, const OpNames& touched) {
  int64_t num_touched = 0;
  int64_t num_ops = 0;
  for (const Op& op : step.ops) {
    num_ops += op.num_layers;
    num_touched += touched.Contain(op.name) ? op.num_layers : 0;
  }
  return num_ops == 0 ? 0 : static_cast<double>(num_touched) / static_cast<double>(num_ops);
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
        input.hidden.insert(reach.categories.begin(), reach.categories.end());
        break;
      case FieldReach::Kind::kBounded:
        input.bounded.insert(reach.categories.begin(), reach.categories.end());
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

Ceiling MakeCeiling(const CeilingInput& input, absl::string_view of) {
  const Touched touched = TouchedOf(input);
  if (touched.names.are_none() && !input.gaps_may_go && input.pin_us <= 0) {
    return input.is_all_reached ? Ceiling{1.0, "nothing of the step is what it acts on"}
                                : Ceiling{std::nullopt, "no op differs"};
  }
  if (of != "step" && !touched.hidden.are_none()) {
    return {std::nullopt, absl::StrCat("overlap moves time between ", of, " and the rest")};
  }
  const PartTime time = MeasuredTime(*input.breakdown, touched.names, of);
  if (!(time.total_us > 0)) {
    return {std::nullopt, absl::StrCat("the breakdown does not show ", of)};
  }
  const double floor_us = std::min(FloorOfTouched(input, touched, of), time.touched_us);
  const double gaps_us =
      time.unclaimed_us * (input.gaps_may_go ? 1 : TouchedOpShare(*input.baseline, touched.names));
  const double draft_us = of == "step" ? input.draft_share * input.breakdown->step_us : 0;
  const double pin_us = of == "step" || of == "moe" ? input.pin_us : 0;
  const double least_us =
      time.total_us - (time.touched_us - floor_us) - gaps_us - pin_us + draft_us;
  const double tokens = input.variant.tokens_per_step / input.baseline->tokens_per_step;
  if (!(least_us > 0) || !(tokens > 0)) {
    return {std::nullopt, absl::StrCat("all of ", of, " may go away")};
  }
  Ceiling ceiling;
  ceiling.speedup = time.total_us / least_us * tokens;
  ceiling.arithmetic = absl::StrFormat("%.1f / (%.1f", time.total_us, time.total_us);
  if (!touched.names.are_none()) {
    absl::StrAppendFormat(&ceiling.arithmetic, " - (%.1f - %.1f)", time.touched_us, floor_us);
  }
  if (gaps_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " - %.1f gaps", gaps_us);
  if (pin_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " - %.1f pinned", pin_us);
  if (draft_us > 0) absl::StrAppendFormat(&ceiling.arithmetic, " + %.1f drafts", draft_us);
  absl::StrAppend(&ceiling.arithmetic, ")");
  if (tokens != 1) absl::StrAppendFormat(&ceiling.arithmetic, " * %.4g tokens", tokens);
  absl::StrAppendFormat(&ceiling.arithmetic, " = %.3f, us", *ceiling.speedup);
  if (!touched.names.are_none()) {
    absl::StrAppend(&ceiling.arithmetic, "; touched: ", touched.names.Join());
  }
  return ceiling;
}

absl::StatusOr<CeilingInput> PrepareCeiling(const Plan& baseline, const Plan& variant,
                                            const Point& point, const StepBreakdown& breakdown,
                                            ExpectedSteps& steps) {
  if (baseline.num_ranks() != variant.num_ranks() ||
      baseline.parallel.pipeline != variant.parallel.pipeline ||
      baseline.parallel.data != variant.parallel.data ||
      baseline.parallel.micro_batches != variant.parallel.micro_batches) {
    return absl::FailedPreconditionError(
        "ranks, stages or replicas differ, so steps do not compare op by op");
  }
  CeilingInput input;
  LASTFLOP_ASSIGN_OR_RETURN(input.baseline, steps.OfBaseline(baseline, point));
  LASTFLOP_ASSIGN_OR_RETURN(input.variant, steps.Make(variant, point));
  LASTFLOP_RETURN_IF_ERROR(AddReach(baseline, variant, input));
  input.layer_kinds = steps.campaign().model.layer_kinds;
  input.machine = &steps.MachineOfRank(variant);
  input.breakdown = &breakdown;
  if (!baseline.moe.l2_pin.has_value()) {
    input.pin_us = PinMicros(*input.machine, variant);
  }
  if (point.phase == Phase::kDecode) {
    input.draft_share =
        static_cast<double>(variant.speculative.draft_tokens) * variant.speculative.draft_cost;
  }
  return input;
}

}  // namespace lastflop
