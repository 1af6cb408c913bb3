#include "worker/cpu_arm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collectives/all_reduce_algorithm.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/units.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/routing.h"
#include "step/work.h"
#include "worker/cpu_backend.h"
#include "worker/cpu_run_op.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSampleStream = 0x746F6B656E73ULL;

// Fewer layers than that are run several times within a timed step, which is else mostly LM head
// while its layers' noise is multiplied by what they stand for.
constexpr int64_t kLayersOfTimedStep = 8;

double MicrosBetween(Clock::time_point begin, Clock::time_point end) {
  return Micros(end - begin).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arm>> CpuArm::Create(std::unique_ptr<CpuStep> step,
                                                    const BackendOptions& options, Gang& gang,
                                                    CacheEvictor& evictor, AfterOp after_op) {
  CpuCommunicator::Options all;
  all.share_cores = step->pool->shared_cores();
  LASTFLOP_ASSIGN_OR_RETURN(std::unique_ptr<CpuCommunicator> all_ranks,
                            CpuCommunicator::Create(gang, std::move(all)));
  LASTFLOP_RETURN_IF_ERROR(ConnectCpuStep(gang, *step));
  std::unique_ptr<CpuArm> arm(
      new CpuArm(std::move(step), options, std::move(all_ranks), evictor, std::move(after_op)));
  LASTFLOP_RETURN_IF_ERROR(arm->AgreeOnPasses(gang));
  LASTFLOP_RETURN_IF_ERROR(arm->SetDraw(0));
  return arm;
}

CpuArm::CpuArm(std::unique_ptr<CpuStep> step, const BackendOptions& options,
               std::unique_ptr<CpuCommunicator> all_ranks, CacheEvictor& evictor, AfterOp after_op)
    : step_(std::move(step)),
      options_(options),
      all_ranks_(std::move(all_ranks)),
      evictor_(evictor),
      after_op_(std::move(after_op)) {
  MakeSegments();
  // Experts apart, so that the least lucky draw is cold too.
  evicts_ = !options_.measure.warm &&
            ColdBytesOf(*step_, 0) < 2 * static_cast<double>(evictor_.cache_bytes());
}

void CpuArm::MakeSegments() {
  const auto& ops = step_->step.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i == 0 || ops[i].layer != ops[i - 1].layer || segments_.back().receives) {
      const auto* transfer = std::get_if<StageTransferShape>(&ops[i].shape);
      Segment segment{.begin = i,
                      .end = i,
                      .scale = 1,
                      .is_layer = ops[i].layer >= 0,
                      .receives = transfer != nullptr && transfer->receive};
      if (segment.is_layer) {
        const auto kind = step_->model.layer_kinds[static_cast<size_t>(ops[i].layer)];
        segment.scale =
            kind == LayerKind::kMoe ? step_->step.moe_layer_scale : step_->step.dense_layer_scale;
      }
      segments_.push_back(segment);
    }
    segments_.back().end = i + 1;
  }
}

int64_t CpuArm::PassesOfThisRank() const {
  const auto num_kept = static_cast<int64_t>(step_->step.layers.size());
  const double stands_for = step_->step.moe_layer_scale;
  if (options_.measure.warm || evicts_ || num_kept == 0 || stands_for < 2 ||
      step_->step.experts_only || is_pipeline()) {
    return 1;
  }
  // Of all ranks that go through this cache, without what routing may leave out.
  double layer_bytes = 0;
  for (const CpuOp& op : step_->ops) {
    if (op.op->layer >= 0) {
      const double least_experts =
          step_->layout.expert_groups == 1 ? static_cast<double>(step_->model.top_k) : 0;
      const double experts =
          step_->plan.moe.opportunistic_keep > 0
              ? std::min(least_experts, static_cast<double>(step_->plan.moe.opportunistic_keep))
              : least_experts;
      const Work work = WorkOf(op.op->shape, {.pairs = 0, .unique_experts = experts});
      layer_bytes += work.weight_bytes + work.cache_bytes;
    }
  }
  const std::vector<int>& sharing = evictor_.ranks_of_cache();
  const auto num_sharing = std::count_if(
      sharing.begin(), sharing.end(), [this](int rank) { return rank < step_->plan.num_ranks(); });
  if (layer_bytes * static_cast<double>(num_sharing) <
      2 * static_cast<double>(evictor_.cache_bytes())) {
    return 1;  // A second pass would find the first one's weights in the cache.
  }
  return std::clamp<int64_t>(kLayersOfTimedStep / num_kept, 1, static_cast<int64_t>(stands_for));
}

absl::Status CpuArm::AgreeOnPasses(Gang& gang) {
  const int64_t own = step_->is_idle() ? kLayersOfTimedStep : PassesOfThisRank();
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> all,
                            gang.AllGather(static_cast<double>(own)));
  num_passes_ = static_cast<int64_t>(*std::min_element(all.begin(), all.end()));
  scores_of_pass_.assign(static_cast<size_t>(is_pipeline() ? num_micro_batches() : num_passes_),
                         step_->drawn_scores);
  return absl::OkStatus();
}

absl::Status CpuArm::StartTogether() {
  const std::vector<std::byte> own(sizeof(int64_t));
  std::vector<std::byte> all(own.size() * static_cast<size_t>(all_ranks_->num_ranks()));
  return all_ranks_->AllGather(own, all).status();
}

absl::StatusOr<StepTiming> CpuArm::Run() {
  LASTFLOP_ASSIGN_OR_RETURN(const RunTimes times, TimedRun(/*time_ops=*/false));
  return times.step;
}

absl::StatusOr<CpuArm::RunTimes> CpuArm::TimedRun(bool time_ops) {
  if (is_pipeline()) {
    return TimedPipelineRun(time_ops);
  }
  RunTimes times;
  if (time_ops) {
    times.op_us.assign(step_->ops.size(), 0.0);
  }
  if (evicts_ && !step_->is_idle()) {
    LASTFLOP_RETURN_IF_ERROR(evictor_.Evict());
  }
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  if (step_->is_idle()) {
    return times;
  }
  for (size_t begin = 0; begin < segments_.size();) {
    size_t end = begin + 1;
    while (segments_[begin].is_layer && end < segments_.size() && segments_[end].is_layer) {
      ++end;
    }
    LASTFLOP_RETURN_IF_ERROR(RunLayers(begin, end, times));
    begin = end;
  }
  times.step.us += HostMicros();
  return times;
}

absl::Status CpuArm::RunLayers(size_t begin, size_t end, RunTimes& times) {
  const bool is_layer = segments_[begin].is_layer;
  const int64_t num_passes = is_layer ? num_passes_ : 1;
  for (int64_t pass = 0; pass < num_passes; ++pass) {
    // Between timed segments; the step ends up with the scores of pass 0 again.
    step_->drawn_scores.swap(scores_of_pass_[static_cast<size_t>(pass)]);
    for (size_t i = begin; i < end; ++i) {
      const Segment& segment = segments_[i];
      const double scale = segment.scale / static_cast<double>(num_passes);
      if (options_.measure.warm && is_layer) {
        LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, scale, nullptr));
      }
      LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, scale, &times));
    }
    step_->drawn_scores.swap(scores_of_pass_[static_cast<size_t>(pass)]);
  }
  return absl::OkStatus();
}

absl::Status CpuArm::RunSegment(const Segment& segment, double scale, RunTimes* times) {
  // What it waits for other stages is no part of a segment: a pipeline's step has it.
  const double wait_before = step_->wait_us;
  const double stage_wait_before = step_->stage_wait_us;
  const Clock::time_point begin = Clock::now();
  for (size_t i = segment.begin; i < segment.end; ++i) {
    if (step_->step.experts_only && std::holds_alternative<RouterShape>(step_->ops[i].op->shape)) {
      continue;  // Route() has run it.
    }
    if (times == nullptr || times->op_us.empty()) {
      LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, step_->ops[i]));
      continue;
    }
    const double op_stage_wait = step_->stage_wait_us;
    const Clock::time_point op_begin = Clock::now();
    LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, step_->ops[i]));
    times->op_us[i] +=
        scale * (MicrosBetween(op_begin, Clock::now()) - (step_->stage_wait_us - op_stage_wait));
  }
  if (times != nullptr) {
    const double stage_wait = step_->stage_wait_us - stage_wait_before;
    times->step.us += scale * (MicrosBetween(begin, Clock::now()) - stage_wait);
    times->step.wait_us += scale * (step_->wait_us - wait_before - stage_wait);
  }
  return absl::OkStatus();
}

double CpuArm::HostMicros() const {
  return step_->plan.launch.host_us_per_step + HostMicrosOfLaunches();
}

double CpuArm::HostMicrosOfLaunches() const {
  double num_launches = 0;
  for (const Segment& segment : segments_) {
    num_launches += segment.scale * static_cast<double>(segment.end - segment.begin);
  }
  return step_->plan.launch.host_us_per_launch * num_launches;
}

absl::Status CpuArm::CheckOp(int64_t draw, size_t index, CheckedOps& checked) {
  const uint64_t seed = CounterRandom(static_cast<uint64_t>(draw), kSampleStream, index / 64);
  LASTFLOP_ASSIGN_OR_RETURN(const OpCheck check,
                            CheckCpuOp(*step_, step_->ops[index], seed, after_op_));
  // What follows a wrong op is wrong because of it.
  if (checked.worst.ok() &&
      (checked.worst_op == nullptr || check.share() > checked.worst.share())) {
    checked = {.worst = check, .worst_op = step_->ops[index].op};
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckResult> CpuArm::Check(int64_t draw) {
  LASTFLOP_RETURN_IF_ERROR(SetDraw(draw));
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  CheckedOps checked;
  if (is_pipeline()) {
    LASTFLOP_ASSIGN_OR_RETURN(checked, CheckPipeline(draw));
  } else {
    // All ops run, also after a mismatch: the other ranks are in the same collectives.
    for (size_t i = 0; i < step_->ops.size(); ++i) {
      LASTFLOP_RETURN_IF_ERROR(CheckOp(draw, i, checked));
    }
  }
  const OpCheck& worst = checked.worst;
  const Op* const worst_op = checked.worst_op;
  CheckResult result{.ok = worst.ok(), .max_error = worst.error, .tolerance = worst.tolerance};
  if (worst_op != nullptr && !worst.ok()) {
    result.detail = absl::StrFormat(
        "%s in layer %d disagrees with its reference%s: error %.3g, tolerance %.3g", worst_op->name,
        worst_op->layer, worst.what.empty() ? "" : " (" + worst.what + ")", worst.error,
        worst.tolerance);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> output, Output());
  const bool is_finite =
      std::all_of(output.begin(), output.end(), [](float value) { return std::isfinite(value); });
  // Of a pipeline, the stage that made them says so: an earlier one has nothing to do with it.
  const bool made_them = step_->layout.stage + 1 == step_->layout.num_stages;
  if (result.ok && !is_finite && made_them) {
    result.ok = false;
    result.detail = "the final hidden states are not finite";
  }
  return result;
}

absl::StatusOr<std::vector<float>> CpuArm::Output() {
  if (is_pipeline()) {
    return PipelineOutput();
  }
  if (step_->is_idle()) {
    return std::vector<float>{};
  }
  const auto hidden =
      step_->As<Bf16>(step_->step.output, step_->step.num_tokens * step_->model.hidden_size);
  std::vector<float> output(hidden.size());
  std::transform(hidden.begin(), hidden.end(), output.begin(),
                 [](Bf16 value) { return ToFloat(value); });
  return output;
}

absl::StatusOr<std::vector<int32_t>> CpuArm::ChosenExperts() {
  if (is_pipeline()) {
    return PipelineExperts();
  }
  std::vector<int32_t> experts;
  for (const CpuRouting& routing : step_->routing) {
    experts.insert(experts.end(), routing.expert_ids.begin(), routing.expert_ids.end());
  }
  return experts;
}

absl::StatusOr<Arm::Breakdown> CpuArm::MeasureBreakdown(int num_samples) {
  if (num_samples < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a breakdown of ", num_samples, " samples: at least one is needed"));
  }
  std::vector<RunTimes> runs;
  for (int i = 0; i < num_samples; ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(RunTimes times, TimedRun(/*time_ops=*/true));
    runs.push_back(std::move(times));
  }
  // The run of median time, whole: medians of single ops would not add up to any step.
  std::nth_element(runs.begin(), runs.begin() + num_samples / 2, runs.end(),
                   [](const RunTimes& a, const RunTimes& b) { return a.step.us < b.step.us; });
  const RunTimes& median = runs[static_cast<size_t>(num_samples / 2)];
  if (is_pipeline()) {
    return PipelineBreakdown(median);
  }
  const Machine machine = PartOfRank(options_.machine, step_->plan.num_ranks());

  Breakdown breakdown{.entries = {}, .step_us = median.step.us, .method = "host timeline"};
  std::map<std::string, size_t> entry_of;
  double sum_us = 0;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const Op& op = *step_->ops[i].op;
    const auto [found, is_new] = entry_of.try_emplace(op.name, breakdown.entries.size());
    if (is_new) {
      breakdown.entries.push_back({.category = op.category, .op = op.name});
    }
    BreakdownEntry& entry = breakdown.entries[found->second];
    const double scale = ScaleOf(i);
    entry.us += median.op_us[i];
    entry.count += std::llround(scale);
    entry.floor_us += scale * FloorMicros(Priced(i), machine);
    sum_us += median.op_us[i];
  }
  breakdown.entries.push_back({.category = OpCategory::kHost,
                               .op = "host",
                               .us = std::max(0.0, median.step.us - sum_us),
                               .count = 1});
  return breakdown;
}

double CpuArm::ScaleOf(size_t op_index) const {
  for (const Segment& segment : segments_) {
    if (op_index < segment.end) {
      return segment.scale;
    }
  }
  return 1;
}

Op CpuArm::Priced(size_t index) const {
  Op op = *step_->ops[index].op;
  const int moe_index = step_->ops[index].moe_index;
  if (moe_index >= 0) {
    op.work = WorkOf(op.shape, loads_[static_cast<size_t>(moe_index)]);
  }
  return op;
}

double CpuArm::least_possible_us() const {
  Machine machine = options_.machine;
  if (options_.measure.warm) {
    machine.peak_bandwidth_gb_per_s.reset();  // Weights come from the cache there.
  }
  double micros = 0;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    micros += ScaleOf(i) * DeclaredFloorMicros(Priced(i), machine);
  }
  // A stage that fits the cache reads its weights from there for all micro-batches but one.
  return is_pipeline() && !evicts_ ? micros * static_cast<double>(num_micro_batches()) : micros;
}

Plan CpuArm::effective_plan() const {
  Plan plan = step_->plan;
  plan.moe.weights = ExpertStorage(step_->model, plan).format;
  for (const CpuOp& op : step_->ops) {
    const auto* shape = std::get_if<AllReduceShape>(&op.op->shape);
    if (shape == nullptr) {
      continue;
    }
    const auto resolved = ResolveCpuAllReduce(
        shape->algorithm, shape->elements * static_cast<int64_t>(sizeof(Bf16)), shape->ranks);
    if (resolved.ok()) {
      plan.collectives.all_reduce = *resolved;
    }
  }
  return plan;
}

std::string CpuArm::effective_note() const {
  std::vector<std::string> notes;
  if (step_->pool->shared_cores()) {
    notes.push_back("ranks share cores");
  }
  const int64_t num_ranks = step_->plan.num_ranks();
  if (num_ranks < all_ranks_->num_ranks()) {
    notes.push_back(absl::StrCat(all_ranks_->num_ranks() - num_ranks, " of ",
                                 all_ranks_->num_ranks(), " ranks are idle"));
  }
  const auto asked = step_->plan.collectives.all_reduce;
  const auto ran = effective_plan().collectives.all_reduce;
  if (asked != ran) {
    notes.push_back(absl::StrCat("all_reduce ", ToWord(asked), " -> ", ToWord(ran)));
  }
  if (step_->step.moe_layer_scale > 1) {
    notes.push_back(absl::StrFormat("%d layers kept, each MoE layer stands for %.4g",
                                    step_->step.layers.size(), step_->step.moe_layer_scale));
  }
  if (num_passes_ > 1) {
    notes.push_back(
        absl::StrCat("a timed step is the mean over ", num_passes_, " passes of the layers"));
  }
  for (const CpuOp& op : step_->ops) {
    if (op.plugin != nullptr) {
      notes.push_back(op.plugin->Describe());
      break;
    }
  }
  if (options_.measure.warm) {
    notes.push_back("warm: every layer runs twice, the second run is timed");
  }
  if (is_pipeline()) {
    notes.push_back(pipeline_end() == PipelineEnd::kReturnsTokens
                        ? "a step is the time between two tokens of a sequence, in a pipeline that "
                          "does not run empty"
                        : "a step begins and ends with an empty pipeline");
  }
  if (evicts_) {
    notes.push_back(is_pipeline() ? "the last-level cache is evicted between micro-batches"
                                  : "the last-level cache is evicted between steps");
  }
  if (options_.measure.zeros) {
    notes.push_back("zero data");
  }
  return absl::StrJoin(notes, "; ");
}

double CpuArm::tokens_per_step() const { return TokensPerStep(step_->plan, step_->point); }

}  // namespace lastflop
