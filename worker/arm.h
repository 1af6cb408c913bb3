#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "common/campaign.h"
#include "common/plan.h"
#include "common/trial.h"
#include "step/make_step.h"

// The seam between the sampling loop, which knows the method (DESIGN section 4), and a backend,
// which knows a device. One implementation for the CPU, one for CUDA.
namespace lastflop {

class PluginHost;

// One timed step on this rank. Layers are scaled to the model's (Step::moe_layer_scale), what
// happens once a step is not.
struct StepTiming {
  double us = 0;
  double wait_us = 0;  // Of `us`, spent waiting for other ranks before a collective.
  bool throttled = false;
};

// A plan made ready on this rank at one point: weights, buffers, graph. Not thread-safe.
class Arm {
 public:
  virtual ~Arm() = default;

  // Makes inputs and routing of draw `draw` current. Untimed, and complete when it returns. Equal
  // draws give equal data in both arms of a pair and on every rank.
  virtual absl::Status SetDraw(int64_t draw) = 0;

  // Runs the step once and waits for it.
  virtual absl::StatusOr<StepTiming> Run() = 0;

  // Runs the step of `draw` with poisoned buffers at the timed configuration and compares what
  // it wrote with the plain reference. A wrong result is a CheckResult with ok false; an error
  // means that the check could not be made.
  virtual absl::StatusOr<CheckResult> Check(int64_t draw) = 0;

  // The final hidden states [num_tokens, hidden_size] of the last Run() or Check(), as fp32, and
  // the chosen experts per layer: for the error of a lossy variant against the baseline. Of a
  // pipeline, every rank of the gang calls each of them together, and gets what all stages have.
  virtual absl::StatusOr<std::vector<float>> Output() = 0;
  virtual absl::StatusOr<std::vector<int32_t>> ChosenExperts() = 0;

  // A run of its own with every op timed apart, median over `num_samples` steps; closes to
  // `step_us` with the residual under OpCategory::kHost.
  struct Breakdown {
    std::vector<BreakdownEntry> entries;
    double step_us = 0;
    std::string method;
    bool of_all_ranks = false;  // The same on every rank of the plan, from all of them.
  };
  virtual absl::StatusOr<Breakdown> MeasureBreakdown(int num_samples) = 0;

  // What really runs: `auto` resolved, clamped values; and a note in words.
  virtual Plan effective_plan() const = 0;
  virtual std::string effective_note() const = 0;

  // Untimed steps that Run() needs before its first timed one, after a Check(): 0 where a check
  // leaves device and clocks as a step does.
  virtual int num_warm_up_steps() const { return 1; }

  // Output tokens of the deployment a step, and realised routing of the current draw.
  virtual double tokens_per_step() const = 0;
  virtual double unique_experts() const = 0;
  // What this rank has of the current draw: of one MoE layer, the mean over those kept.
  virtual ExpertLoad load() const = 0;
  virtual double imbalance() const = 0;
  virtual double capture_us() const = 0;
  // Lower bound of the step's time on the declared peaks of the machine, scaled; 0 when unknown.
  // A faster sample is invalid.
  virtual double least_possible_us() const = 0;
};

// The device of one child process.
class Backend {
 public:
  virtual ~Backend() = default;

  // Before the arms of an attempt are made, on every rank: what both need together. Errors as
  // Prepare(). Plans that share nothing have nothing to decide here.
  virtual absl::Status StartAttempt(const Plan& /*baseline*/, const Plan& /*variant*/,
                                    const Point& /*point*/, Gang& /*gang*/) {
    return absl::OkStatus();
  }

  // Makes `plan` ready at `point`. `gang` is outlived by the arm. Errors: Unimplemented for a field
  // that this backend cannot honour (standing `unsupported`; the message names field, value and
  // reason), InvalidArgument or ResourceExhausted for what does not fit (`infeasible`).
  virtual absl::StatusOr<std::unique_ptr<Arm>> Prepare(const Plan& plan, const Point& point,
                                                       Gang& gang) = 0;

  // Device, driver, cores, clocks: what a result must say of where it ran.
  virtual std::map<std::string, std::string> Environment() = 0;

  // FNV-1a over a sample of the weights and inputs that data_seed gives.
  virtual std::string DataChecksum() = 0;
};

// What all attempts of a launch share.
struct BackendOptions {
  Model model;
  MeasureOptions measure;
  Machine machine;  // Declared or detected.
  int64_t layers_kept = 0;
  uint64_t data_seed = 0;
  int rank = 0;
  int num_ranks = 1;
  int device_index = 0;
  std::string gpu_uuid;  // That device_index must be, as held and watched; "": not known.
  bool shard = false;    // One rank stands for all: its collectives are modelled.
  // Routed experts alone (StepOptions) of one rank, whatever ranks the plan has.
  bool experts_only = false;
  // Whose share of the routing the one rank of a shard or of experts_only has, layer by layer: the
  // most loaded rank's, or its own.
  bool most_loaded = true;
  PluginHost* plugins = nullptr;  // Of moe.kernel=plugin:NAME; outlives the backend. Null: none.
};

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options);

// Unimplemented in a build without CUDA.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& options);

}  // namespace lastflop
