#include "worker/cpu_arm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <span>
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

constexpr uint64_t kTokenStream = 0x746F6B656E73ULL;

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
    if (i == 0 || ops[i].layer != ops[i - 1].layer) {
      Segment segment{.begin = i, .end = i, .scale = 1, .is_layer = ops[i].layer >= 0};
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

std::vector<int32_t> CpuArm::DrawTokenIds(uint64_t seed, int64_t draw, int64_t first, int64_t count,
                                          int64_t vocab_size) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t random = CounterRandom(seed, kTokenStream + static_cast<uint64_t>(draw),
                                          static_cast<uint64_t>(first + i));
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(random % static_cast<uint64_t>(vocab_size));
  }
  return ids;
}

absl::Status CpuArm::SetDraw(int64_t draw) {
  if (step_->is_idle()) {
    return absl::OkStatus();
  }
  const int64_t first_token = step_->first_sequence() * QueryTokens(step_->plan, step_->point);
  step_->token_ids = DrawTokenIds(options_.data_seed, draw, first_token, step_->step.num_tokens,
                                  step_->model.vocab_size);
  return DrawRouting(draw);
}

absl::Status CpuArm::DrawRouting(int64_t draw) {
  const Model& model = step_->model;
  const int64_t query_tokens = QueryTokens(step_->plan, step_->point);
  const int64_t all_tokens = step_->point.batch * query_tokens;
  const int64_t first_token = step_->first_sequence() * query_tokens;
  const int64_t groups = step_->layout.expert_groups;
  double unique = 0;
  double imbalance = 0;
  loads_.clear();
  for (const int layer : step_->step.layers) {
    if (model.layer_kinds[static_cast<size_t>(layer)] != LayerKind::kMoe) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(
        const std::vector<float> scores,
        MakeRouterScores(model, step_->point.routing, all_tokens, layer, draw));
    const auto begin = scores.begin() + first_token * model.num_experts;
    step_->drawn_scores[loads_.size()].assign(begin,
                                              begin + step_->step.num_tokens * model.num_experts);
    // Independent replicas route their own tokens; else all tokens meet all experts.
    const bool own_tokens = !step_->layout.data_attention;
    const std::vector<ExpertLoad> loads = LoadPerRank(
        model,
        own_tokens ? ChooseExperts(model, step_->drawn_scores[loads_.size()],
                                   step_->step.num_tokens, step_->plan.moe.opportunistic_keep)
                   : ChooseExperts(model, scores, all_tokens, step_->plan.moe.opportunistic_keep),
        groups);
    double pairs = 0;
    double most_pairs = 0;
    for (const ExpertLoad& load : loads) {
      unique += load.unique_experts;
      pairs += load.pairs;
      most_pairs = std::max(most_pairs, load.pairs);
    }
    imbalance += pairs > 0 ? most_pairs * static_cast<double>(groups) / pairs : 1;
    loads_.push_back(loads[static_cast<size_t>(step_->layout.expert_group)]);
  }
  const double num_layers = std::max<double>(1, static_cast<double>(loads_.size()));
  unique_experts_ = unique / num_layers;
  imbalance_ = loads_.empty() ? 1 : imbalance / num_layers;
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
  for (const Segment& segment : segments_) {
    if (options_.measure.warm && segment.is_layer) {
      LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, nullptr));
    }
    LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, &times));
  }
  times.step.us += HostMicros();
  return times;
}

absl::Status CpuArm::RunSegment(const Segment& segment, RunTimes* times) {
  const double wait_before = step_->wait_us;
  const Clock::time_point begin = Clock::now();
  for (size_t i = segment.begin; i < segment.end; ++i) {
    if (times == nullptr || times->op_us.empty()) {
      LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, step_->ops[i]));
      continue;
    }
    const Clock::time_point op_begin = Clock::now();
    LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, step_->ops[i]));
    times->op_us[i] = segment.scale * MicrosBetween(op_begin, Clock::now());
  }
  if (times != nullptr) {
    times->step.us += segment.scale * MicrosBetween(begin, Clock::now());
    times->step.wait_us += segment.scale * (step_->wait_us - wait_before);
  }
  return absl::OkStatus();
}

double CpuArm::HostMicros() const {
  const Plan::Launch& launch = step_->plan.launch;
  double num_launches = 0;
  for (const Segment& segment : segments_) {
    num_launches += segment.scale * static_cast<double>(segment.end - segment.begin);
  }
  return launch.host_us_per_step + launch.host_us_per_launch * num_launches;
}

absl::StatusOr<CheckResult> CpuArm::Check(int64_t draw) {
  LASTFLOP_RETURN_IF_ERROR(SetDraw(draw));
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  OpCheck worst;
  const Op* worst_op = nullptr;
  // All ops run, also after a mismatch: the other ranks are in the same collectives.
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const uint64_t seed = CounterRandom(static_cast<uint64_t>(draw), kTokenStream, i / 64);
    LASTFLOP_ASSIGN_OR_RETURN(const OpCheck check,
                              CheckCpuOp(*step_, step_->ops[i], seed, after_op_));
    if (!worst.ok()) {
      continue;  // What follows a wrong op is wrong because of it.
    }
    if (worst_op == nullptr || check.share() > worst.share()) {
      worst = check;
      worst_op = step_->ops[i].op;
    }
  }
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
  if (result.ok && !is_finite) {
    result.ok = false;
    result.detail = "the final hidden states are not finite";
  }
  return result;
}

absl::StatusOr<std::vector<float>> CpuArm::Output() {
  if (step_->is_idle()) {
    return std::vector<float>{};
  }
  const auto hidden =
      step_->As<Bf16>(Tensor::kNormed, step_->step.num_tokens * step_->model.hidden_size);
  std::vector<float> output(hidden.size());
  std::transform(hidden.begin(), hidden.end(), output.begin(),
                 [](Bf16 value) { return ToFloat(value); });
  return output;
}

absl::StatusOr<std::vector<int32_t>> CpuArm::ChosenExperts() {
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
    entry.floor_us += scale * FloorMicros(Priced(i), options_.machine);
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
  return micros;
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
  if (options_.measure.warm) {
    notes.push_back("warm: every layer runs twice, the second run is timed");
  }
  if (evicts_) {
    notes.push_back("the last-level cache is evicted between steps");
  }
  if (options_.measure.zeros) {
    notes.push_back("zero data");
  }
  return absl::StrJoin(notes, "; ");
}

double CpuArm::tokens_per_step() const { return TokensPerStep(step_->plan, step_->point); }

}  // namespace lastflop
