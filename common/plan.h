#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/words.h"

namespace lastflop {

struct L2Pin {
  double share = 0;  // Of the device's persisting maximum, (0, 1].
  PinSelect select = PinSelect::kPopularity;
  bool operator==(const L2Pin&) const = default;
};

struct NcclTuning {
  std::string algorithm;  // "" is NCCL's own choice.
  std::string protocol;
  int64_t channels = 0;  // 0 is NCCL's own choice.
  bool operator==(const NcclTuning&) const = default;
};

struct Speculative {
  int64_t draft_tokens = 0;  // 0 is off.
  double acceptance = 0;     // Probability that a draft token is accepted, [0, 1].
  double draft_cost = 0;     // Time of one draft token in baseline decode steps, >= 0.
  bool operator==(const Speculative&) const = default;
};

// How one step runs: plain data. Every member is a field of `PlanFields()` (the one list that YAML,
// proto, canonical text and hash share), in this order.
struct Plan {
  struct Parallel {
    int64_t tensor = 1;
    int64_t expert = 1;  // 1 slices every expert with `tensor`.
    int64_t data = 1;
    int64_t pipeline = 1;
    AttentionParallel attention = AttentionParallel::kTensor;
    int64_t micro_batches = 1;
    bool operator==(const Parallel&) const = default;
  } parallel;
  struct Moe {
    std::optional<WeightFormat> weights;  // Unset: as the model stores its experts.
    ActivationFormat activations = ActivationFormat::kBf16;
    Dequant dequant = Dequant::kFused;
    MoeKernel kernel = MoeKernel::kGrouped;
    std::string plugin;  // Set when kernel is kPlugin: "plugin:NAME".
    TileOrder tile_order = TileOrder::kRowMajor;
    int64_t group_m = 0;  // 0: the kernel's own choice.
    std::optional<L2Pin> l2_pin;
    CacheHint cache_hint = CacheHint::kNone;
    int64_t opportunistic_keep = 0;  // 0: top_k; else {opportunistic: {keep: n}}.
    int64_t redundant_experts = 0;
    bool operator==(const Moe&) const = default;
  } moe;
  struct Collectives {
    AllReduceAlgorithm all_reduce = AllReduceAlgorithm::kAuto;
    NcclTuning nccl;
    bool fuse_norm = false;
    bool fuse_finalize = false;
    ActivationFormat payload = ActivationFormat::kBf16;
    AllToAllAlgorithm all_to_all = AllToAllAlgorithm::kP2p;
    bool operator==(const Collectives&) const = default;
  } collectives;
  CacheFormat attention_cache = CacheFormat::kBf16;
  struct Launch {
    GraphMode graph = GraphMode::kNone;
    bool dependent = false;
    int64_t steps = 1;
    double host_us_per_launch = 0;  // Added for engines slower than ours.
    double host_us_per_step = 0;
    bool operator==(const Launch&) const = default;
  } launch;
  Overlap overlap = Overlap::kNone;
  int64_t overlap_sms = 0;  // {single_batch: {sms: n}}
  Speculative speculative;
  std::map<std::string, std::string> process_env;
  std::string engine;         // A command; "" runs lastflop's own step.
  std::string engine_result;  // How its result is read: a JSON pointer into its stdout.
  bool operator==(const Plan&) const = default;

  // Processes a step needs: tensor x data x pipeline (expert spreads over tensor x data).
  int64_t num_ranks() const { return parallel.tensor * parallel.data * parallel.pipeline; }
};

// One plan field: how it is set from text and printed. Maps of the YAML are written as one path a
// member (`moe.l2_pin.share`, `collectives.nccl.channels`, `decode.speculative.acceptance`,
// `engine.command`), choices that carry a number as WORD:NUMBER (`moe.expert_activation` =
// "opportunistic:4", `overlap` = "single_batch:32"); spec/ flattens the YAML to these.
struct PlanField {
  absl::string_view path;    // "parallel.tensor"
  absl::string_view values;  // What is accepted, for messages: "an integer >= 1".
  // Parses `text` into `plan`. InvalidArgument says the value and what would be accepted.
  absl::Status (*set)(absl::string_view text, Plan& plan);
  // The canonical text of the field's value, which `set` accepts again.
  std::string (*get)(const Plan& plan);
  // Whether `get` gives the same text of both, told from the values: plans are compared often, and
  // texts take longer. May be false where it does.
  bool (*is_same)(const Plan& a, const Plan& b);
};

// All fields in canonical order. `process.env` is one field whose text is a JSON object.
std::span<const PlanField> PlanFields();

// NotFound for an unknown path, with the nearest known one as a suggestion.
absl::Status SetPlanField(absl::string_view path, absl::string_view text, Plan& plan);

// One `path=value` line per field in canonical order: the plan's only text form.
std::string CanonicalText(const Plan& plan);

// Inverse of CanonicalText. Unknown paths are an error (an older binary must not drop a field);
// fields that are absent keep their default.
absl::StatusOr<Plan> ParseCanonicalText(absl::string_view text);

// 16 hex digits over CanonicalText: FNV-1a, 64 bit.
std::string PlanHash(const Plan& plan);

// Paths whose values differ, in canonical order, with both texts.
struct PlanDifference {
  std::string path;
  std::string from;
  std::string to;
};
std::vector<PlanDifference> DiffPlans(const Plan& from, const Plan& to);

}  // namespace lastflop
