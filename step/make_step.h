#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"
#include "step/op.h"

namespace lastflop {

// What routing gives one rank in a layer: expected (planner) or realised (executor, reports).
struct ExpertLoad {
  double pairs = 0;           // (token, expert) pairs that this rank computes.
  double unique_experts = 0;  // Experts of this rank with at least one pair.
};

struct StepOptions {
  // 0: all. Else the first so many MoE layers of a stage run, and the first dense one if there is
  // any; Step's scales say how many each stands for.
  int64_t layers_kept = 0;
  // Of the layers that run, those whose ops are alike are built once: for who prices a step and
  // does not run it. Op::num_layers says how many each op is of.
  bool distinct_layers_only = false;
  // The plan has passed CheckFeasible and CheckPoint, and is not checked again.
  bool is_checked = false;
  ExpertLoad load;  // Of one MoE layer; work of expert ops is priced with it.
  // Of every MoE layer only what lies between the experts' ids and their summed output: `kNormed`
  // in, `kHidden` out, no collective. The shared experts' output, which nothing makes then, is not
  // added.
  bool experts_only = false;
};

// The ops of `rank`'s step. InvalidArgument: an infeasible plan, with the arithmetic (as
// CheckFeasible says it); experts_only under data attention, where tokens come from other ranks.
absl::StatusOr<Step> MakeStep(const Model& model, const Plan& plan, const Point& point, int rank,
                              const StepOptions& options);

// Whether the plan's degrees and formats divide the model: heads, experts and quantization blocks
// over ranks. The message shows the arithmetic ("384 mod 5 = 4").
absl::Status CheckFeasible(const Model& model, const Plan& plan);

// Whether the plan makes sense at this point: batch against data and pipeline degrees.
absl::Status CheckPoint(const Model& model, const Plan& plan, const Point& point);

// Tokens that come out of the whole deployment a step: batch for decode, times the expected
// 1 + accepted drafts under speculation ((1 - a^(d+1)) / (1 - a)); prompt tokens for prefill.
double TokensPerStep(const Plan& plan, const Point& point);

// Memory one rank needs, in bytes, and what it has.
struct MemoryFit {
  double weight_bytes = 0;     // With all layers (or those kept).
  double cache_bytes = 0;      // KV cache at the point's context.
  double workspace_bytes = 0;  // Activations, logits, collectives.
  double available_bytes = 0;
  double total_bytes = 0;      // Of all ranks together.
  int64_t devices_needed = 0;  // Least tensor degree at which it would fit; 0 when none does.
  bool fits() const { return weight_bytes + cache_bytes + workspace_bytes <= available_bytes; }
  // "needs 84.1 GiB (weights 76.0, cache 6.1, workspace 2.0) of 80.0 GiB"; in MiB where all is
  // smaller.
  std::string Describe() const;
};

// The fit of the rank that needs most, with the kept layers. An infeasible plan never fits: its
// weight_bytes are infinite.
MemoryFit FitMemory(const Model& model, const Plan& plan, const Point& point, int64_t layers_kept,
                    double available_bytes);

// ResourceExhausted where the plan does not fit: what a rank needs and has, and what would help.
absl::Status CheckMemory(const Model& model, const Plan& plan, const Point& point,
                         int64_t layers_kept, double available_bytes);

// The rest of a device's or host's memory is for the system, other processes and pages in flight.
inline constexpr double kUsableMemoryShare = 0.9;

}  // namespace lastflop
