#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/plan.h"
#include "planner/cost/imported_rows.h"
#include "planner/cost/load_estimate.h"
#include "planner/cost/op_curves.h"
#include "planner/ranking.h"

// The time of a whole step from model, machine, plan and point, without running anything.
namespace lastflop {

// A category of the step (all layers together).
struct PredictedPart {
  OpCategory category = OpCategory::kOther;
  TimeEstimate time;
};

// An op of the step, all layers together, by name as Step has it ("moe.gate_up").
struct PredictedOp {
  std::string op;
  OpCategory category = OpCategory::kOther;
  OpFamily family = OpFamily::kGemm;
  TimeEstimate time;
  double floor_us = 0;
};

struct StepPrediction {
  // One step of the whole deployment: of the most loaded rank, with its collectives; the longest
  // path through the stages of a pipeline (step/pipeline_time.h). Drafts of speculation and what
  // the host adds are in it.
  TimeEstimate step;
  // By us, descending. They sum to step.us; what overlap hides is taken off the collectives.
  std::vector<PredictedPart> categories;
  std::vector<PredictedOp> ops;  // In order of the step; filled when asked for.
  double tokens_per_step = 0;    // Of the whole deployment, speculation included.
  double tokens_per_s = 0;
  double unique_experts = 0;  // Of the rank, a layer.
  double overlap_us = 0;      // Hidden by plan.overlap.
  std::string borrowed;       // Whose curves they are, where not of this machine; "" otherwise.
  // What the figure rests on beyond measured curves: "curves of NVIDIA H200, scaled by bandwidth".
  std::vector<std::string> notes;
};

struct PredictOptions {
  bool with_ops = false;
  bool with_notes = true;
};

// Predicts steps of one model on one machine. Remembers expected routing. One thread at a time.
class StepPredictor {
 public:
  // `model`, `machine` and `curves` outlive the predictor. InvalidArgument: a machine without a
  // bandwidth.
  static absl::StatusOr<StepPredictor> Create(const Model& model, const Machine& machine,
                                              const OpCurves& curves = H200OpCurves());

  // From now on, MoE layers and all-reduces whose curves are worse known (by origin, then by how
  // near the measured system is) take the time that imported rows give. The ops of a layer keep
  // their proportions; a plan's own kernels and choices move it as its curves say. Notes name the
  // rows. `imported` outlives the predictor.
  void UseImported(ImportedRows& imported) { imported_ = &imported; }

  // InvalidArgument: an infeasible plan or point, with the arithmetic (step/make_step.h); a machine
  // without link numbers where the plan has collectives. Unimplemented: a plan that runs a command
  // (`engine`). Memory is not checked: FitMemory does.
  absl::StatusOr<StepPrediction> Predict(const Plan& plan, const Point& point,
                                         const PredictOptions& options = {});

 private:
  StepPredictor(const Model& model, const Machine& machine, const OpCurves& curves,
                const MachineRates& rates);

  struct Stage;
  absl::StatusOr<Stage> PredictStage(const Plan& plan, const Point& point, int stage,
                                     bool with_ops);
  // Each as often as it is on the step's longest path.
  absl::StatusOr<Stage> PredictStages(const Plan& plan, const Point& point, bool with_ops);
  // The factor on a MoE layer's ops, and its interval.
  absl::StatusOr<std::optional<ImportedTime>> ImportedFactor(const Plan& plan, const Point& point,
                                                             int rank, int64_t num_tokens,
                                                             const Machine& machine,
                                                             const MachineRates& rates);
  absl::StatusOr<TimeEstimate> CollectiveTime(const Op& op, const Machine& machine,
                                              const MachineRates& rates);
  bool IsBetterKnown(const ImportedTime& imported, Origin own) const;
  void NoteImported(absl::string_view part, const ImportedTime& imported);

  const Model* model_;      // Outlives this.
  const Machine* machine_;  // Outlives this.
  const OpCurves* curves_;  // Outlives this.
  MachineRates rates_;
  std::unique_ptr<LoadEstimator> loads_;
  ImportedRows* imported_ = nullptr;  // Outlives this; null: none.
  std::set<std::string> imported_notes_;
};

// The same once.
absl::StatusOr<StepPrediction> PredictStep(const Model& model, const Machine& machine,
                                           const Plan& plan, const Point& point,
                                           const OpCurves& curves = H200OpCurves());

}  // namespace lastflop
