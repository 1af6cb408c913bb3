#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "step/make_step.h"
#include "step/pipeline_time.h"
#include "step/routing.h"
#include "worker/arm.h"
#include "worker/cpu_check_op.h"
#include "worker/cpu_step.h"

namespace lastflop {

class CacheEvictor;

// A plan on the CPU backend. The time of a step is the host's monotonic clock around its layers
// and around what happens once a step, from a common start of all ranks on.
class CpuArm final : public Arm {
 public:
  // A collective call over the gang. `gang` and `evictor` outlive the arm.
  static absl::StatusOr<std::unique_ptr<Arm>> Create(std::unique_ptr<CpuStep> step,
                                                     const BackendOptions& options, Gang& gang,
                                                     CacheEvictor& evictor, AfterOp after_op);

  absl::Status SetDraw(int64_t draw) override;
  absl::StatusOr<StepTiming> Run() override;
  absl::StatusOr<CheckResult> Check(int64_t draw) override;
  absl::StatusOr<std::vector<float>> Output() override;
  absl::StatusOr<std::vector<int32_t>> ChosenExperts() override;
  absl::StatusOr<Breakdown> MeasureBreakdown(int num_samples) override;

  Plan effective_plan() const override;
  std::string effective_note() const override;
  double tokens_per_step() const override;
  double unique_experts() const override { return unique_experts_; }
  ExpertLoad load() const override { return MeanLoad(loads_); }
  double imbalance() const override { return imbalance_; }
  double capture_us() const override { return 0; }      // Nothing is captured.
  int num_warm_up_steps() const override { return 0; }  // A check runs the whole step.
  double least_possible_us() const override;

 private:
  // Consecutive ops that are timed together: a layer, or what is outside of layers.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    double scale = 1;  // How many of the model's layers it stands for.
    bool is_layer = false;
    bool receives = false;  // The hand-over that a pass on a stage begins with, alone.
  };
  // Microseconds of one run, scaled.
  struct RunTimes {
    StepTiming step;
    std::vector<double> op_us;  // By op, when asked for; of a pipeline, the mean over its passes.
    // Of a pipeline, by stage: the rank that takes longest, and how many of its passes lie on the
    // longest path of the step.
    std::vector<int> stage_rank;
    std::vector<double> passes_on_path;
  };
  // What passes of a step took on one rank of a pipeline, by micro-batch: as they went, evictions
  // and all, and as they count, layers scaled to the model's. Neither has what the rank waited for
  // stages.
  struct PassTimes {
    std::vector<double> went_us;
    std::vector<double> counted_us;
  };

  // The worst of what a check found so far.
  struct CheckedOps {
    OpCheck worst;
    const Op* worst_op = nullptr;
  };

  CpuArm(std::unique_ptr<CpuStep> step, const BackendOptions& options,
         std::unique_ptr<CpuCommunicator> all_ranks, CacheEvictor& evictor, AfterOp after_op);

  void MakeSegments();
  absl::Status AgreeOnPasses(Gang& gang);
  int64_t PassesOfThisRank() const;
  absl::Status StartTogether();
  absl::Status CheckOp(int64_t draw, size_t index, CheckedOps& checked);
  absl::StatusOr<RunTimes> TimedRun(bool time_ops);
  absl::Status RunLayers(size_t begin, size_t end, RunTimes& times);
  absl::Status RunSegment(const Segment& segment, double scale, RunTimes* times);

  // worker/cpu_arm_draw.cc, with SetDraw()
  absl::Status DrawRouting(int64_t draw);
  absl::Status Route();

  // worker/cpu_arm_pipeline.cc
  int64_t num_micro_batches() const { return step_->plan.parallel.micro_batches; }
  bool is_pipeline() const { return step_->plan.parallel.pipeline > 1 && !options_.experts_only; }
  PipelineEnd pipeline_end() const;
  absl::StatusOr<RunTimes> TimedPipelineRun(bool time_ops);
  absl::Status RunMicroBatches(bool fills, RunTimes& times, PassTimes& passes);
  absl::Status RunMicroBatch(size_t index, bool fills, RunTimes& times, PassTimes& passes);
  absl::Status TakeTokens();
  absl::Status FinishPipelineRun(double wall_us, const PassTimes& filling, const PassTimes& passes,
                                 RunTimes& times);
  absl::StatusOr<CheckedOps> CheckPipeline(int64_t draw);
  absl::StatusOr<std::vector<float>> PipelineOutput();
  absl::StatusOr<std::vector<int32_t>> PipelineExperts();
  absl::StatusOr<Breakdown> PipelineBreakdown(const RunTimes& times);
  // All ranks' `own` of the gang, by rank; every rank passes as many.
  template <typename T>
  absl::StatusOr<std::vector<T>> GatherAll(const std::vector<T>& own) const;

  double HostMicros() const;
  double HostMicrosOfLaunches() const;
  // The op with its work at the realised load of the current draw.
  Op Priced(size_t index) const;
  double ScaleOf(size_t op_index) const;

  std::unique_ptr<CpuStep> step_;
  const BackendOptions options_;
  std::unique_ptr<CpuCommunicator> all_ranks_;  // Idle ones too: the common start.
  CacheEvictor& evictor_;                       // Outlives this.
  AfterOp after_op_;
  std::vector<Segment> segments_;
  bool evicts_ = false;  // A step alone does not make its weights cold.
  double unique_experts_ = 0;
  double imbalance_ = 1;
  std::vector<ExpertLoad> loads_;  // Of this rank, by moe_index: the mean over passes.
  // How often a timed step goes through the kept layers: passes stand for layers that are not kept,
  // each with the routing of other ones, and their mean for one pass.
  int64_t num_passes_ = 1;
  // By pass (micro-batch of a pipeline) and moe_index: [num_tokens, num_experts]. The step has
  // those of pass 0.
  std::vector<std::vector<std::vector<float>>> scores_of_pass_;
};

}  // namespace lastflop
