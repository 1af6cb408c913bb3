// The steps of a pipeline on the CPU backend: docs/adr/pipeline-steps.md.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/units.h"
#include "step/floors.h"
#include "step/layout.h"
#include "worker/cpu_arm.h"
#include "worker/cpu_backend.h"
#include "worker/cpu_run_op.h"

namespace lastflop {
namespace {

using PipelineClock = std::chrono::steady_clock;

double MicrosSince(PipelineClock::time_point begin) {
  return Micros(PipelineClock::now() - begin).count();
}

// The hand-over of tokens that a decode pass on the first stage begins with.
bool TakesTokens(const Op& op) {
  const auto* transfer = std::get_if<StageTransferShape>(&op.shape);
  return transfer != nullptr && transfer->receive && transfer->tokens;
}

double SumOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum;
}

// What all ranks said of one run, [rank]: the time of the step on the rank's clock, and its
// passes'.
class RunOfAllRanks {
 public:
  RunOfAllRanks(const Plan& plan, std::vector<double> said)
      : tensor_(static_cast<size_t>(plan.parallel.tensor)),
        stage_ranks_(static_cast<size_t>(plan.parallel.tensor * plan.parallel.data)),
        num_stages_(static_cast<size_t>(plan.parallel.pipeline)),
        micro_batches_(static_cast<size_t>(plan.parallel.micro_batches)),
        said_(std::move(said)) {}

  // The slowest replica's step. Passes went as they did on the last stage's clock; what they count
  // more or less than they took moves the step as it moves a pipeline of such passes. Late turns on
  // shared cores never make it shorter than its passes.
  double StepMicros(PipelineEnd end) const {
    double slowest_us = 0;
    for (size_t first = 0; first < stage_ranks_; first += tensor_) {
      double wall_us = 0;
      for (size_t i = 0; i < tensor_; ++i) {
        wall_us = std::max(wall_us, Wall((num_stages_ - 1) * stage_ranks_ + first + i));
      }
      const double counted_us = Micros(first, end, kCounted, kFillingCounted);
      const double went_us = Micros(first, end, kWent, kFillingWent);
      slowest_us = std::max({slowest_us, counted_us, wall_us + counted_us - went_us});
    }
    return slowest_us;
  }

  // Of each stage the rank whose passes count most, and their mean.
  void SlowestOfStages(std::vector<int>& ranks, std::vector<double>& mean_us) const {
    for (size_t stage = 0; stage < num_stages_; ++stage) {
      size_t slowest = stage * stage_ranks_;
      for (size_t rank = slowest; rank < (stage + 1) * stage_ranks_; ++rank) {
        slowest = Counted(rank) > Counted(slowest) ? rank : slowest;
      }
      ranks.push_back(static_cast<int>(slowest));
      mean_us.push_back(Counted(slowest) / static_cast<double>(micro_batches_));
    }
  }

 private:
  // What follows the time of the step in what a rank says, one time a micro-batch each.
  enum Part : size_t { kCounted, kWent, kFillingCounted, kFillingWent, kNumParts };

  double Micros(size_t first, PipelineEnd end, Part passes, Part filling) const {
    return PipelineMicros(
        end == PipelineEnd::kReturnsTokens ? Passes(first, filling) : StagePasses{},
        Passes(first, passes));
  }
  double Wall(size_t rank) const { return said_[rank * (1 + kNumParts * micro_batches_)]; }
  double Said(size_t rank, Part part, size_t micro_batch) const {
    return said_[rank * (1 + kNumParts * micro_batches_) + 1 + part * micro_batches_ + micro_batch];
  }
  double Counted(size_t rank) const {
    double sum = 0;
    for (size_t j = 0; j < micro_batches_; ++j) {
      sum += Said(rank, kCounted, j);
    }
    return sum;
  }
  // [stage][micro-batch] of the replica whose ranks in a stage begin with `first`.
  StagePasses Passes(size_t first, Part part) const {
    StagePasses passes(num_stages_, std::vector<double>(micro_batches_, 0));
    for (size_t stage = 0; stage < num_stages_; ++stage) {
      for (size_t j = 0; j < micro_batches_; ++j) {
        for (size_t i = 0; i < tensor_; ++i) {
          passes[stage][j] =
              std::max(passes[stage][j], Said(stage * stage_ranks_ + first + i, part, j));
        }
      }
    }
    return passes;
  }

  const size_t tensor_;
  const size_t stage_ranks_;
  const size_t num_stages_;
  const size_t micro_batches_;
  const std::vector<double> said_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::vector<T>> CpuArm::GatherAll(const std::vector<T>& own) const {
  std::vector<T> all(own.size() * static_cast<size_t>(all_ranks_->num_ranks()));
  LASTFLOP_RETURN_IF_ERROR(
      all_ranks_->AllGather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)))
          .status());
  return all;
}

PipelineEnd CpuArm::pipeline_end() const {
  return step_->point.phase == Phase::kDecode ? PipelineEnd::kReturnsTokens
                                              : PipelineEnd::kRunsEmpty;
}

absl::StatusOr<CpuArm::RunTimes> CpuArm::TimedPipelineRun(bool time_ops) {
  const auto micro_batches = static_cast<size_t>(num_micro_batches());
  RunTimes times;
  PassTimes passes{.went_us = std::vector<double>(micro_batches, 0),
                   .counted_us = std::vector<double>(micro_batches, 0)};
  PassTimes filling = passes;
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  double wall_us = 0;
  if (!step_->is_idle()) {
    if (pipeline_end() == PipelineEnd::kReturnsTokens) {
      RunTimes untimed;
      LASTFLOP_RETURN_IF_ERROR(RunMicroBatches(/*fills=*/true, untimed, filling));
    }
    if (time_ops) {
      times.op_us.assign(step_->ops.size(), 0.0);
    }
    const PipelineClock::time_point begin = PipelineClock::now();
    LASTFLOP_RETURN_IF_ERROR(RunMicroBatches(/*fills=*/false, times, passes));
    wall_us = MicrosSince(begin);
    LASTFLOP_RETURN_IF_ERROR(TakeTokens());
    step_->SelectMicroBatch(0);
  }
  LASTFLOP_RETURN_IF_ERROR(FinishPipelineRun(wall_us, filling, passes, times));
  return times;
}

absl::Status CpuArm::RunMicroBatches(bool fills, RunTimes& times, PassTimes& passes) {
  for (size_t i = 0; i < passes.went_us.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(RunMicroBatch(i, fills, times, passes));
  }
  return absl::OkStatus();
}

// One pass of this stage. A step that fills the pipeline has no tokens to wait for.
absl::Status CpuArm::RunMicroBatch(size_t index, bool fills, RunTimes& times, PassTimes& passes) {
  const double stage_wait_before = step_->stage_wait_us;
  const double counted_before = times.step.us;
  const PipelineClock::time_point begin = PipelineClock::now();
  step_->SelectMicroBatch(static_cast<int64_t>(index));
  bool evicts = evicts_;
  for (const Segment& segment : segments_) {
    if (segment.receives) {
      if (!fills || !TakesTokens(*step_->ops[segment.begin].op)) {
        LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, segment.scale, &times));
      }
      continue;
    }
    if (evicts) {
      // Once its input is here, so that the time it takes can be told from waiting.
      LASTFLOP_RETURN_IF_ERROR(evictor_.Evict());
      evicts = false;
    }
    if (options_.measure.warm && segment.is_layer) {
      LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, segment.scale, nullptr));
    }
    LASTFLOP_RETURN_IF_ERROR(RunSegment(segment, segment.scale, &times));
  }
  passes.went_us[index] = MicrosSince(begin) - (step_->stage_wait_us - stage_wait_before);
  passes.counted_us[index] = times.step.us - counted_before + HostMicrosOfLaunches();
  return absl::OkStatus();
}

// The tokens of the last step, which no pass waits for.
absl::Status CpuArm::TakeTokens() {
  for (CpuOp& op : step_->ops) {
    for (int64_t i = 0; TakesTokens(*op.op) && i < num_micro_batches(); ++i) {
      step_->SelectMicroBatch(i);
      LASTFLOP_RETURN_IF_ERROR(RunCpuOp(*step_, op));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuArm::FinishPipelineRun(double wall_us, const PassTimes& filling,
                                       const PassTimes& passes, RunTimes& times) {
  std::vector<double> own = {wall_us};
  for (const auto* times_us :
       {&passes.counted_us, &passes.went_us, &filling.counted_us, &filling.went_us}) {
    own.insert(own.end(), times_us->begin(), times_us->end());
  }
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<double> said, GatherAll(own));
  const RunOfAllRanks run(step_->plan, std::move(said));
  std::vector<double> mean_us;
  run.SlowestOfStages(times.stage_rank, mean_us);
  times.passes_on_path = PassesOnPath(mean_us, num_micro_batches(), pipeline_end());
  for (double& us : times.op_us) {
    us /= static_cast<double>(num_micro_batches());
  }
  const double in_stage_wait_us = times.step.wait_us;
  times.step.us = run.StepMicros(pipeline_end());
  times.step.wait_us =
      step_->is_idle() ? 0
                       : in_stage_wait_us + std::max(0.0, times.step.us - SumOf(passes.counted_us));
  times.step.us += step_->plan.launch.host_us_per_step;
  return absl::OkStatus();
}

absl::StatusOr<CpuArm::CheckedOps> CpuArm::CheckPipeline(int64_t draw) {
  CheckedOps checked;
  // All ops run, also after a mismatch: the other ranks are in the same collectives. Tokens come
  // back after the passes of the one step that is checked.
  for (const bool of_tokens : {false, true}) {
    for (int64_t j = 0; j < num_micro_batches() && !step_->is_idle(); ++j) {
      step_->SelectMicroBatch(j);
      for (size_t i = 0; i < step_->ops.size(); ++i) {
        if (TakesTokens(*step_->ops[i].op) == of_tokens) {
          LASTFLOP_RETURN_IF_ERROR(CheckOp(draw, i, checked));
        }
      }
    }
  }
  if (!step_->is_idle()) {
    step_->SelectMicroBatch(0);
  }
  return checked;
}

// Of the last stage, for every rank of the replica and its place in a tensor group.
absl::StatusOr<std::vector<float>> CpuArm::PipelineOutput() {
  const auto num_ranks = static_cast<int64_t>(step_->plan.num_ranks());
  const int64_t stage_ranks = num_ranks / step_->plan.parallel.pipeline;
  const bool is_idle = step_->is_idle();
  const int64_t count = is_idle ? 0 : step_->step.num_tokens * step_->model.hidden_size;
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, GatherAll<int64_t>({count}));
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<float> output;
  for (int64_t j = 0; j < num_micro_batches(); ++j) {
    std::vector<uint16_t> own(static_cast<size_t>(most));
    if (!is_idle) {
      step_->SelectMicroBatch(j);
      const auto hidden = step_->As<uint16_t>(step_->step.output, count);
      std::copy(hidden.begin(), hidden.end(), own.begin());
    }
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> all, GatherAll(own));
    if (!is_idle) {
      const int64_t place =
          step_->layout.replica * step_->layout.tensor + step_->layout.tensor_rank;
      const auto* const last =
          reinterpret_cast<const Bf16*>(all.data()) + (num_ranks - stage_ranks + place) * most;
      std::transform(last, last + count, std::back_inserter(output),
                     [](Bf16 value) { return ToFloat(value); });
    }
  }
  if (!is_idle) {
    step_->SelectMicroBatch(0);
  }
  return output;
}

// [layer][token][k] of all stages, as a plan without stages has them.
absl::StatusOr<std::vector<int32_t>> CpuArm::PipelineExperts() {
  std::vector<int32_t> own;
  for (size_t layer = 0; layer < step_->routing.size(); ++layer) {
    for (int64_t j = 0; j < num_micro_batches(); ++j) {
      step_->SelectMicroBatch(j);
      const auto& ids = step_->routing[layer].expert_ids;
      own.insert(own.end(), ids.begin(), ids.end());
    }
  }
  if (!step_->is_idle()) {
    step_->SelectMicroBatch(0);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                            GatherAll<int64_t>({static_cast<int64_t>(own.size())}));
  const auto most = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  own.resize(most, -1);
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<int32_t> all, GatherAll(own));
  std::vector<int32_t> experts;
  const int64_t num_ranks = step_->plan.num_ranks();
  const int64_t stage_ranks = num_ranks / step_->plan.parallel.pipeline;
  const int64_t place = step_->layout.replica * step_->layout.tensor + step_->layout.tensor_rank;
  for (int64_t rank = place; rank < num_ranks && !step_->is_idle(); rank += stage_ranks) {
    const auto begin = all.begin() + rank * static_cast<int64_t>(most);
    experts.insert(experts.end(), begin, begin + counts[static_cast<size_t>(rank)]);
  }
  return experts;
}

// The longest path of the step: of each stage, its slowest rank's mean pass as often as it is on
// the path. Every rank gets the same.
absl::StatusOr<Arm::Breakdown> CpuArm::PipelineBreakdown(const RunTimes& times) {
  std::vector<BreakdownEntry> entries;
  std::map<std::string, size_t> entry_of;
  const int64_t stage_ranks = step_->plan.num_ranks() / step_->plan.parallel.pipeline;
  for (int64_t stage = 0; stage < step_->plan.parallel.pipeline; ++stage) {
    LASTFLOP_ASSIGN_OR_RETURN(
        const Step step,
        MakeStep(step_->model, step_->plan, step_->point, static_cast<int>(stage * stage_ranks),
                 {.layers_kept = options_.layers_kept, .load = {}}));
    for (const Op& op : step.ops) {
      if (entry_of.try_emplace(op.name, entries.size()).second) {
        entries.push_back({.category = op.category, .op = op.name});
      }
    }
  }
  // Of one pass on this rank: microseconds, floors, ops.
  const Machine machine = PartOfRank(options_.machine, RanksAtOnce(step_->plan));
  std::vector<double> own(3 * entries.size(), 0.0);
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const size_t at = 3 * entry_of.at(step_->ops[i].op->name);
    own[at] += times.op_us[i];
    own[at + 1] += ScaleOf(i) * FloorMicros(Priced(i), machine);
    own[at + 2] += ScaleOf(i);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> all, GatherAll(own));
  Breakdown breakdown{.entries = {},
                      .step_us = times.step.us,
                      .method = "host timeline of the stages that the step waits for",
                      .of_all_ranks = true};
  double sum_us = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    BreakdownEntry& entry = entries[i];
    double count = 0;
    for (size_t stage = 0; stage < times.stage_rank.size(); ++stage) {
      const double passes = times.passes_on_path[stage];
      const size_t at = static_cast<size_t>(times.stage_rank[stage]) * own.size() + 3 * i;
      entry.us += passes * all[at];
      entry.floor_us += passes * all[at + 1];
      count += passes * all[at + 2];
    }
    entry.count = std::llround(count);
    sum_us += entry.us;
    if (entry.count > 0) {
      breakdown.entries.push_back(entry);
    }
  }
  breakdown.entries.push_back({.category = OpCategory::kHost,
                               .op = "host",
                               .us = std::max(0.0, breakdown.step_us - sum_us),
                               .count = 1});
  return breakdown;
}

}  // namespace lastflop
