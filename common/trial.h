#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign.h"
#include "common/pair.h"
#include "common/words.h"

namespace lastflop {

// What a trial compares. The baseline's own trial has both arms equal: it gives tokens/s, noise,
// breakdown and an A/A check.
inline constexpr char kBaselineId[] = "baseline";

// A trial's identity: one intervention (and one value choice of its `try` sweep) at one point.
struct TrialSpec {
  std::string trial_id;         // "t0007": unique in a campaign, stable.
  std::string intervention_id;  // kBaselineId for the baseline's own.
  std::string choice;           // "" or "moe.tile_order=column_major" of a `try` sweep.
  int point_index = 0;
  int round = 1;  // Of the campaign; the baseline of a later one has the earlier winners in it.
  TrialRole role = TrialRole::kCompare;
  Plan baseline;
  Plan variant;
  // Set when it will not be dispatched at all.
  std::optional<Standing> settled;
  std::string settled_reason;
};

// One timed pair as it came from the gang: maximum over ranks, and each part scaled as the step is
// (kept layers times their scale plus what happens once a step). Where the variant's step puts out
// another number of tokens than the baseline's (speculation), the worker divides variant_us by the
// ratio, so that both arms are times of the same output: variant tokens/s is the baseline's
// TokensPerStep over variant_us.
struct PairSample {
  Pair pair;                    // launch, draw, both times.
  bool variant_first = false;   // Order of the arms.
  double baseline_wait_us = 0;  // Waiting for a late rank, summed over the step.
  double variant_wait_us = 0;
  double unique_experts = 0;  // Realised, mean over MoE layers, over all ranks.
  double imbalance = 1;       // Most loaded rank's pairs over the mean, mean over layers.
};

struct BreakdownEntry {
  OpCategory category = OpCategory::kOther;
  std::string op;       // Op name, "moe.gate_up".
  double us = 0;        // Per scaled step, on the slowest rank, median over samples.
  int64_t count = 0;    // Ops of this name a step.
  double floor_us = 0;  // Sum of floors of these ops; 0 when the machine has no curve.
};

// Comparison of an output with its reference.
struct CheckResult {
  bool ok = false;
  double max_error = 0;  // Relative to the reference's scale; see kernels/tolerance.h.
  double tolerance = 0;
  double error_to_baseline = 0;  // Lossy: ||out - baseline|| / ||baseline||.
  double changed_routes = 0;     // Share of (token, expert) pairs that differ from the baseline.
  std::string detail;
  bool ran = true;
};

struct Failure {
  FailureKind kind = FailureKind::kInternal;
  std::string message;
  int rank = -1;  // The rank that caused it, -1 when none did alone.
};

// AttemptResult::environment: the share of the host's processors that others than the gang took
// while it was timed, 0 to 1.
inline constexpr char kCpuShareElsewhere[] = "cpu_share_elsewhere";

// The same, of an attempt on the CPU of a host with GPUs: why they are not used.
inline constexpr char kUnusedGpus[] = "unused_gpus";

// What one attempt (one trial, one launch, one gang) gives.
struct AttemptResult {
  std::string attempt_id;
  std::string trial_id;
  int launch = 0;
  std::optional<Failure> failure;  // Set: the samples are kept and count for nothing.
  std::vector<PairSample> samples;
  CheckResult check_before{.ran = false};
  CheckResult check_after{.ran = false};
  std::vector<BreakdownEntry> breakdown;  // Baseline trials only.
  std::string breakdown_method;           // "host timeline", "cupti graph nodes", ...
  double breakdown_step_us = 0;           // Measured step of the breakdown run, scaled.
  std::string effective_baseline;         // Canonical texts of the plans that really ran.
  std::string effective_variant;
  std::string effective_note;  // "ranks share cores", "all_reduce auto -> one_shot"
  Fidelity fidelity = Fidelity::kFull;
  bool warm = false;
  uint64_t data_seed = 0;
  std::string data_checksum;                       // Of the weights and inputs made from data_seed.
  double sampling_s = 0;                           // Timed sampling.
  double setup_s = 0;                              // Spawn, weights, capture: apart from sampling.
  double capture_us = 0;                           // Graph capture and instantiation, variant.
  std::map<std::string, std::string> environment;  // device, driver, build hash, cores, clocks ...
  std::vector<std::string> warnings;
};

}  // namespace lastflop
