#include "planner/cost/predict_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/collective_cost.h"
#include "planner/cost/find_in_turn.h"
#include "planner/cost/step_notes.h"
#include "planner/cost/systems.h"
#include "planner/cost/units.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/pipeline_time.h"
#include "step/work.h"

namespace lastflop {
namespace {

constexpr size_t kNumCategories = EnumWords<OpCategory>::kWords.size();
constexpr double kNotableShare = 0.05;  // A part this large decides what the sum rests on.
constexpr double kFusedShare = 0.3;     // What is left of an op that another kernel takes in.
constexpr double kHiddenShare = 0.5;    // Of what could be hidden at best, beside other work.

size_t Index(OpCategory category) { return static_cast<size_t>(category); }

// Sums of times that rest on shared curves: errors of one family add, of several they do not.
struct Sum {
  double us = 0;
  std::array<double, kNumOpFamilies + 1> deviation_us{};  // The last: what no family covers.
  std::array<double, 4> us_of_origin{};

  void Add(double part_us, double part_deviation_us, Origin origin, size_t family) {
    us += part_us;
    deviation_us[family] += part_deviation_us;
    us_of_origin[static_cast<size_t>(origin)] += part_us;
  }

  TimeEstimate Estimate() const {
    double variance = 0;
    for (const double deviation : deviation_us) {
      variance += deviation * deviation;
    }
    const double relative = us > 0 ? std::sqrt(variance) / us : 0;
    TimeEstimate estimate{.us = us,
                          .low_us = us * std::exp(-kEighty * relative),
                          .high_us = us * std::exp(kEighty * relative),
                          .origin = Origin::kInterpolated};
    for (size_t origin = 0; origin < us_of_origin.size(); ++origin) {
      if (us_of_origin[origin] > kNotableShare * us) {
        estimate.origin = std::max(estimate.origin, static_cast<Origin>(origin));
      }
    }
    return estimate;
  }
};

// Ops that rows of whole MoE calls cover: choice of experts, sorting, products, weighted sum.
bool IsOfMoeCall(const Op& op) {
  return op.layer >= 0 && op.category != OpCategory::kCollective &&
         (op.name == "router.top_k" || absl::StartsWith(op.name, "moe."));
}

std::string DistributionWord(const Routing& routing) {
  switch (routing.distribution) {
    case Distribution::kUniform:
      return "uniform";
    case Distribution::kBalanced:
      return "balanced";
    case Distribution::kZipf:
      return absl::StrCat("zipf_", routing.exponent);
    default:
      return "";
  }
}

// What rows of MoE calls know nothing of, left as a call with the curves' own words has it.
Plan AsImported(Plan plan) {
  plan.moe.kernel = MoeKernel::kGrouped;
  plan.moe.dequant = Dequant::kFused;
  plan.moe.opportunistic_keep = 0;
  plan.moe.redundant_experts = 0;
  return plan;
}

// `time` of a curve as imported rows scale it. Where the rows are of another plan than this, it is
// the curve that says what the difference makes, and its own error comes on top.
TimeEstimate Scaled(const TimeEstimate& time, const TimeEstimate& factor, bool is_of_rows) {
  const auto width = [](double end, double middle) {
    return end > 0 && middle > 0 ? std::log(end / middle) : 0;
  };
  const auto end = [&](double of_factor, double of_time) {
    return is_of_rows ? of_factor : std::hypot(of_factor, of_time);
  };
  const double us = time.us * factor.us;
  return {
      .us = us,
      .low_us = us * std::exp(-end(-width(factor.low_us, factor.us), -width(time.low_us, time.us))),
      .high_us = us * std::exp(end(width(factor.high_us, factor.us), width(time.high_us, time.us))),
      .origin = is_of_rows ? factor.origin : std::max(factor.origin, time.origin)};
}

// What the plan takes into another kernel costs less; the rest of it stays.
double FusedFactor(const Op& op, const Plan& plan, bool has_collectives) {
  if (plan.collectives.fuse_norm && has_collectives && FamilyOf(op) == OpFamily::kRowNorm) {
    return kFusedShare;
  }
  if (plan.collectives.fuse_finalize && has_collectives &&
      std::holds_alternative<CombineShape>(op.shape)) {
    return kFusedShare;
  }
  return 1;
}

}  // namespace

// One pass of a micro-batch through one or all stages.
struct StepPredictor::Stage {
  std::array<Sum, kNumCategories> categories{};
  Sum all;
  double num_ops = 0;          // Launched without a graph.
  double num_layers = 0;       // Of the stage.
  double overlappable_us = 0;  // Collectives and combine beside the down product.
  double down_us = 0;
  double unique_experts = 0;
  double tokens_per_step = 0;
  std::vector<PredictedOp> ops;  // By name, in order of the step; where they are listed.

  void Add(OpCategory category, const TimeEstimate& time, double times, size_t family) {
    const double us = times * time.us;
    const double deviation_us =
        time.us > 0 && time.high_us > time.us ? us * std::log(time.high_us / time.us) / kEighty : 0;
    categories[Index(category)].Add(us, deviation_us, time.origin, family);
    all.Add(us, deviation_us, time.origin, family);
  }
  void AddAssumed(OpCategory category, double us, double scatter) {
    Add(category,
        {.us = us,
         .low_us = us * std::exp(-kEighty * scatter),
         .high_us = us * std::exp(kEighty * scatter),
         .origin = Origin::kAssumed},
        1, kNumOpFamilies);
  }
  void AddToOps(PredictedOp&& op, double times);
  void AddStage(Stage&& stage, double times);

 private:
  size_t next_op_ = 0;  // Behind the op that was added to last.
};

void StepPredictor::Stage::AddToOps(PredictedOp&& op, double times) {
  const size_t place =
      FindInTurn(ops.size(), next_op_, [&](size_t i) { return ops[i].op == op.op; });
  if (place == ops.size()) {
    op.time.us *= times;
    op.time.low_us *= times;
    op.time.high_us *= times;
    op.floor_us *= times;
    ops.push_back(std::move(op));
    return;
  }
  ops[place].time.us += times * op.time.us;
  ops[place].time.low_us += times * op.time.low_us;
  ops[place].time.high_us += times * op.time.high_us;
  ops[place].floor_us += times * op.floor_us;
}

void StepPredictor::Stage::AddStage(Stage&& stage, double times) {
  const auto add = [times](Sum& sum, const Sum& part) {
    sum.us += times * part.us;
    for (size_t i = 0; i < part.deviation_us.size(); ++i) {
      sum.deviation_us[i] += times * part.deviation_us[i];
    }
    for (size_t i = 0; i < part.us_of_origin.size(); ++i) {
      sum.us_of_origin[i] += times * part.us_of_origin[i];
    }
  };
  for (size_t i = 0; i < categories.size(); ++i) {
    add(categories[i], stage.categories[i]);
  }
  add(all, stage.all);
  num_ops += times * stage.num_ops;
  num_layers += times * stage.num_layers;
  overlappable_us += times * stage.overlappable_us;
  down_us += times * stage.down_us;
  unique_experts = std::max(unique_experts, stage.unique_experts);
  tokens_per_step = stage.tokens_per_step;
  for (PredictedOp& op : stage.ops) {
    if (times > 0) {
      AddToOps(std::move(op), times);
    }
  }
}

StepPredictor::StepPredictor(const Model& model, const Machine& machine, const OpCurves& curves,
                             const MachineRates& rates)
    : model_(&model),
      machine_(&machine),
      curves_(&curves),
      rates_(rates),
      loads_(std::make_unique<LoadEstimator>(model)) {}

absl::StatusOr<StepPredictor> StepPredictor::Create(const Model& model, const Machine& machine,
                                                    const OpCurves& curves) {
  LASTFLOP_ASSIGN_OR_RETURN(const MachineRates rates, RatesOf(machine, curves));
  return StepPredictor(model, machine, curves, rates);
}

absl::StatusOr<TimeEstimate> StepPredictor::CollectiveTime(const Op& op, const Machine& machine,
                                                           const MachineRates& rates) {
  const auto* reduce = std::get_if<AllReduceShape>(&op.shape);
  std::optional<ImportedTime> imported;
  if (imported_ != nullptr && reduce != nullptr && reduce->ranks > 1) {
    imported =
        imported_->AllReduce(*machine_, reduce->algorithm, reduce->ranks,
                             static_cast<double>(reduce->elements) * PayloadBytes(reduce->payload));
  }
  const absl::StatusOr<TimeEstimate> own = EstimateCollective(op, machine, rates, *curves_);
  if (imported.has_value() && IsBetterKnown(*imported, own.ok() ? own->origin : Origin::kAssumed)) {
    NoteImported("all-reduces", *imported);
    return imported->time;
  }
  return own;
}

bool StepPredictor::IsBetterKnown(const ImportedTime& imported, Origin own) const {
  if (imported.time.origin != own) {
    return imported.time.origin < own;
  }
  // Both are borrowed: from the nearer architecture.
  const SystemSpec* system = SystemOfMachine(*machine_);
  return system != nullptr && imported.system->architecture == system->architecture &&
         !rates_.is_curves_architecture;
}

void StepPredictor::NoteImported(absl::string_view part, const ImportedTime& imported) {
  imported_notes_.insert(absl::StrCat(part, ": imported rows of ", imported.kernel, " on ",
                                      imported.system->name, " (", imported.sources, "), ",
                                      imported.origin));
}

absl::StatusOr<std::optional<ImportedTime>> StepPredictor::ImportedFactor(
    const Plan& plan, const Point& point, int rank, int64_t num_tokens, const Machine& machine,
    const MachineRates& rates) {
  const Layout layout = MakeLayout(*model_, plan, rank);
  std::optional<ImportedTime> call = imported_->MoeLayer(
      *machine_, {.weights = ExpertStorage(*model_, plan).format,
                  .activations = plan.moe.activations,
                  .hidden_size = model_->hidden_size,
                  .moe_intermediate_size = model_->moe_intermediate_size,
                  .num_experts = model_->num_experts,
                  .top_k = model_->top_k,
                  .slices = layout.data_attention ? 1 : layout.tensor / layout.expert_groups,
                  .expert_groups = layout.expert_groups,
                  .distribution = DistributionWord(point.routing),
                  .num_tokens = num_tokens});
  if (!call.has_value()) {
    return call;
  }
  // The same call as the curves see it: what rows cannot say stays with the curves.
  const Plan plain = AsImported(plan);
  LASTFLOP_ASSIGN_OR_RETURN(const LoadEstimate load, loads_->Estimate(point.routing, num_tokens,
                                                                      layout.expert_groups, 0, 0));
  StepOptions options;
  options.layers_kept = 1;
  options.load = load.most_loaded_rank;
  LASTFLOP_ASSIGN_OR_RETURN(const Step step, MakeStep(*model_, plain, point, rank, options));
  double us = 0;
  Origin own = Origin::kMeasured;
  for (const Op& op : step.ops) {
    if (IsOfMoeCall(op)) {
      const TimeEstimate time = EstimateOp(op, FloorMicros(op, machine), rates, *curves_);
      us += time.us;
      own = std::max(own, time.origin);
    }
  }
  if (!(us > 0) || !IsBetterKnown(*call, own)) {
    return std::nullopt;
  }
  NoteImported("MoE layers", *call);
  call->time.us /= us;
  call->time.low_us /= us;
  call->time.high_us /= us;
  return call;
}

absl::StatusOr<StepPredictor::Stage> StepPredictor::PredictStage(const Plan& plan,
                                                                 const Point& point, int stage,
                                                                 bool with_ops) {
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(*model_, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPoint(*model_, plan, point));
  const int rank = stage * static_cast<int>(plan.parallel.tensor * plan.parallel.data);
  const Layout layout = MakeLayout(*model_, plan, rank);
  const int64_t passes = plan.parallel.micro_batches;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t sequences =
      layout.data_attention
          ? ceil_div(point.batch, passes)
          : ceil_div(SequencesOfReplica(point.batch, layout.num_replicas, layout.replica), passes);
  LASTFLOP_ASSIGN_OR_RETURN(
      const LoadEstimate load,
      loads_->Estimate(point.routing, sequences * QueryTokens(plan, point), layout.expert_groups,
                       plan.moe.opportunistic_keep, plan.moe.redundant_experts));
  // Ranks of a CPU share one memory: together they are done when the mean one is.
  const bool is_shared = machine_->backend == "cpu" && plan.num_ranks() > 1;
  StepOptions options;
  options.layers_kept = 1;
  options.is_checked = true;
  options.load = is_shared ? load.mean_rank : load.most_loaded_rank;
  LASTFLOP_ASSIGN_OR_RETURN(const Step step, MakeStep(*model_, plan, point, rank, options));
  const int64_t ranks_at_once = RanksAtOnce(plan);  // Of its bytes; cores are a rank's own.
  const Machine part = is_shared ? PartOfRank(*machine_, ranks_at_once) : Machine{};
  const Machine& machine = is_shared ? part : *machine_;
  MachineRates rates = rates_;
  if (is_shared) {
    rates.bytes_per_us /= static_cast<double>(ranks_at_once);
    rates.bf16_flop_per_us /= static_cast<double>(plan.num_ranks());
  }
  const bool has_collectives = layout.tensor > 1;
  std::optional<ImportedTime> moe;
  if (imported_ != nullptr) {
    LASTFLOP_ASSIGN_OR_RETURN(
        moe,
        ImportedFactor(plan, point, rank, sequences * QueryTokens(plan, point), machine, rates));
  }
  Stage sum;
  sum.ops.reserve(with_ops ? step.ops.size() : 0);
  for (const Op& op : step.ops) {
    double times = 1;
    if (op.layer >= 0) {
      times = model_->layer_kinds[static_cast<size_t>(op.layer)] == LayerKind::kDense
                  ? step.dense_layer_scale
                  : step.moe_layer_scale;
    }
    const double floor_us = FloorMicros(op, machine);
    TimeEstimate time;
    if (op.category == OpCategory::kCollective) {
      LASTFLOP_ASSIGN_OR_RETURN(time, CollectiveTime(op, machine, rates));
    } else if (moe.has_value() && IsOfMoeCall(op)) {
      time = Scaled(EstimateOp(op, floor_us, rates, *curves_), moe->time, plan == AsImported(plan));
    } else {
      time = EstimateOp(op, floor_us, rates, *curves_);
      if (const double factor = FusedFactor(op, plan, has_collectives); factor < 1) {
        time = {.us = factor * time.us,
                .low_us = 0,
                .high_us = time.high_us,
                .origin = Origin::kAssumed};
      }
    }
    // Errors of one imported call are those of all its ops.
    const bool is_imported = moe.has_value() && IsOfMoeCall(op);
    const OpFamily family = FamilyOf(op);
    sum.Add(op.category, time, times,
            static_cast<size_t>(is_imported ? OpFamily::kFusedMoe : family));
    if (with_ops) {
      sum.AddToOps({.op = op.name,
                    .category = op.category,
                    .family = family,
                    .time = time,
                    .floor_us = floor_us},
                   times);
    }
    sum.num_ops += times;
    if (op.name == "all_reduce.moe" || op.name == "moe.combine" ||
        op.name == "moe.combine_all_to_all") {
      sum.overlappable_us += times * time.us;
    } else if (op.name == "moe.down" || op.name == "moe.fused" || op.name == "moe.plugin") {
      sum.down_us += times * time.us;
    }
  }
  sum.num_layers = layout.end_layer - layout.first_layer;
  sum.unique_experts = options.load.unique_experts;
  sum.tokens_per_step = step.tokens_per_step;
  return sum;
}

absl::StatusOr<StepPredictor::Stage> StepPredictor::PredictStages(const Plan& plan,
                                                                  const Point& point,
                                                                  bool with_ops) {
  std::vector<Stage> stages;
  std::vector<double> stage_us;
  for (int i = 0; i == 0 || i < plan.parallel.pipeline; ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(Stage stage, PredictStage(plan, point, i, with_ops));
    stage_us.push_back(stage.all.us);
    stages.push_back(std::move(stage));
  }
  if (stages.size() == 1) {
    return std::move(stages.front());
  }
  const std::vector<double> passes = PassesOnPath(
      stage_us, plan.parallel.micro_batches,
      point.phase == Phase::kDecode ? PipelineEnd::kReturnsTokens : PipelineEnd::kRunsEmpty);
  Stage sum;
  for (size_t i = 0; i < stages.size(); ++i) {
    sum.AddStage(std::move(stages[i]), passes[i]);
  }
  return sum;
}

absl::StatusOr<StepPrediction> StepPredictor::Predict(const Plan& plan, const Point& point,
                                                      const PredictOptions& options) {
  if (!plan.engine.empty()) {
    return absl::UnimplementedError("engine: what another program does cannot be predicted");
  }
  imported_notes_.clear();
  LASTFLOP_ASSIGN_OR_RETURN(Stage stage, PredictStages(plan, point, options.with_ops));
  StepPrediction prediction;
  prediction.ops = std::move(stage.ops);
  prediction.tokens_per_step = stage.tokens_per_step;
  prediction.unique_experts = stage.unique_experts;
  // Launches.
  const bool is_cuda = machine_->backend == "cuda";
  double launches = 1;
  double gaps = 0;
  if (plan.launch.graph == GraphMode::kNone) {
    launches = stage.num_ops;
    gaps = machine_->launch_gap_us.value_or(curves_->gap_us_per_op) * stage.num_ops;
  } else if (plan.launch.graph == GraphMode::kPiecewise) {
    launches = stage.num_layers + 1;
    gaps = curves_->gap_us_per_layer * stage.num_layers;
  }
  const double once =
      curves_->step_us / static_cast<double>(std::max<int64_t>(1, plan.launch.steps));
  const double host = (is_cuda ? once + gaps : 0) + launches * plan.launch.host_us_per_launch +
                      plan.launch.host_us_per_step;
  stage.AddAssumed(OpCategory::kHost, host, 0.4);
  // Overlap.
  if (plan.overlap == Overlap::kSingleBatch) {
    prediction.overlap_us = kHiddenShare * std::min(stage.overlappable_us, stage.down_us);
  } else if (plan.overlap == Overlap::kTwoBatch) {
    Point half = point;
    half.batch = point.batch / 2;
    if (half.batch < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("overlap=two_batch: batch=", point.batch, " is not two batches"));
    }
    LASTFLOP_ASSIGN_OR_RETURN(const Stage part, PredictStages(plan, half, /*with_ops=*/false));
    // Both halves read the weights; the shorter of products and collectives hides behind the other.
    const double collectives = part.categories[Index(OpCategory::kCollective)].us;
    const double hidden = 2 * kHiddenShare * std::min(part.all.us - collectives, collectives);
    stage.AddAssumed(OpCategory::kOther, std::max(0.0, 2 * part.all.us + host - stage.all.us), 0.4);
    prediction.overlap_us = hidden;
  }
  if (prediction.overlap_us > 0) {
    Sum& collectives = stage.categories[Index(OpCategory::kCollective)];
    prediction.overlap_us = std::min(prediction.overlap_us, collectives.us);
    collectives.us -= prediction.overlap_us;
    stage.all.us -= prediction.overlap_us;
    stage.all.deviation_us[kNumOpFamilies] += prediction.overlap_us;
    stage.all.us_of_origin[static_cast<size_t>(Origin::kAssumed)] += prediction.overlap_us;
  }
  // Drafts cost a share of a decode step without speculation; prefill drafts nothing.
  const Speculative& speculative = plan.speculative;
  if (point.phase == Phase::kDecode && speculative.draft_tokens > 0 && speculative.draft_cost > 0) {
    Plan plain = plan;
    plain.speculative = {};
    LASTFLOP_ASSIGN_OR_RETURN(const StepPrediction one,
                              Predict(plain, point, {.with_ops = false, .with_notes = false}));
    stage.AddAssumed(
        OpCategory::kOther,
        one.step.us * speculative.draft_cost * static_cast<double>(speculative.draft_tokens), 0.1);
  }
  prediction.step = stage.all.Estimate();
  for (size_t i = 0; i < kNumCategories; ++i) {
    if (stage.categories[i].us > 0) {
      prediction.categories.push_back(
          {.category = static_cast<OpCategory>(i), .time = stage.categories[i].Estimate()});
    }
  }
  std::sort(prediction.categories.begin(), prediction.categories.end(),
            [](const PredictedPart& a, const PredictedPart& b) { return a.time.us > b.time.us; });
  prediction.tokens_per_s = prediction.tokens_per_step / prediction.step.us * 1e6;
  if (options.with_notes) {
    prediction.borrowed = BorrowedMachineNote(*machine_, rates_, *curves_);
    prediction.notes = NotesOn(*model_, plan, *machine_, rates_, *curves_);
    if (plan.moe.kernel == MoeKernel::kCublaslt) {
      LASTFLOP_ASSIGN_OR_RETURN(const Step step, MakeStep(*model_, plan, point, /*rank=*/0,
                                                          {.layers_kept = 1, .load = {}}));
      prediction.notes.push_back(PaddingNoteOn(*model_, step));
    }
    prediction.notes.insert(prediction.notes.end(), imported_notes_.begin(), imported_notes_.end());
  }
  return prediction;
}

absl::StatusOr<StepPrediction> PredictStep(const Model& model, const Machine& machine,
                                           const Plan& plan, const Point& point,
                                           const OpCurves& curves) {
  LASTFLOP_ASSIGN_OR_RETURN(StepPredictor predictor, StepPredictor::Create(model, machine, curves));
  return predictor.Predict(plan, point, {.with_ops = true, .with_notes = true});
}

}  // namespace lastflop
