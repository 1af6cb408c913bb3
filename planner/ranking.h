#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign.h"
#include "common/words.h"

// What the planner concludes from a campaign: plain data that report/ prints. A number that is not
// known is nullopt, never 0.
namespace lastflop {

// Where a number is from.
enum class Origin { kMeasured, kInterpolated, kModelled, kAssumed };
LASTFLOP_ENUM_WORDS(Origin, 4, {Origin::kMeasured, "measured"},
                    {Origin::kInterpolated, "interpolated"}, {Origin::kModelled, "modelled"},
                    {Origin::kAssumed, "assumed"});

// A ratio of baseline time over variant time: 1.2 is 20% more tokens in the same time. The interval
// is the family's (stats/multiplicity.h); it is absent when there are too few samples to give one.
struct SpeedupFigure {
  double estimate = 0;
  std::optional<double> low;
  std::optional<double> high;
  int64_t num_pairs = 0;
  int64_t num_launches = 0;
  Origin origin = Origin::kMeasured;
};

// Expected gain in GPU-hours; planner/economics.h has the formula.
struct Gain {
  double net_gpu_hours = 0;
  std::optional<double> low;
  std::optional<double> high;
};

// An intervention at one point.
struct PointResult {
  int point_index = 0;
  std::string label;
  Phase phase = Phase::kDecode;
  int64_t batch = 0;
  int64_t context = 0;
  double time_share = 0;
  std::string routing;              // "zipf 1.2 seed 1".
  std::string choice;               // Of a `try` sweep; "" without one.
  std::vector<FieldSetting> patch;  // What the intervention itself sets here, with that choice.
  Standing standing = Standing::kNotRun;
  std::string reason;  // Why there is no figure, or what to know about the one there is.
  std::optional<SpeedupFigure> speedup;
  std::optional<Effect> effect;  // Multiplicity-controlled. Absent unless measured or predicted.
  std::optional<double> ceiling;
  std::string ceiling_arithmetic;
  std::optional<double> baseline_us;  // Mean of the arm.
  std::optional<double> variant_us;
  std::optional<double> baseline_p50_us;
  std::optional<double> variant_p50_us;
  std::optional<double> baseline_p99_us;
  std::optional<double> variant_p99_us;
  std::optional<double> baseline_tokens_per_s;
  std::optional<double> variant_tokens_per_s;
  std::optional<double> noise;              // Relative deviation of a pair's ratio.
  std::optional<double> detectable_effect;  // Relative, at the samples taken.
  bool converged = false;                   // The asked half width was reached before max_time.
  std::optional<double> throttled_share;    // Of all pairs; dropped up to a fifth.
  // Of all samples of an arm. Absent where it was not stored which arm throttled.
  std::optional<double> baseline_throttled_share;
  std::optional<double> variant_throttled_share;
  bool is_power_limited = false;  // The arms throttle differently beyond chance: stats/throttle.h.
  std::optional<double> error;    // Lossy: relative output error to the baseline.
  std::optional<double> changed_routes;
  Fidelity fidelity = Fidelity::kFull;
  bool enabled = true;  // per_batch: whether the intervention is on at this point in the mix.
};

// One intervention over the whole mix.
struct RankedIntervention {
  std::optional<int> place;          // 1, 2, 3 ... without a gap; absent: n/a, `reason` says why.
  std::optional<double> place_held;  // Share of draws that give it this place (stability.h).
  std::optional<int> pareto_layer;  // 1: nothing placed is cheaper and faster; only of faster ones.
  std::string id;
  std::string title;
  int tier = 1;
  Effort effort;
  double whole_effort_hours = 0;  // Likely, with that of everything it needs.
  double whole_chance = 1;        // That it and everything it needs survive production.
  // Ranks of its plan over the baseline's: GPU-hours are time by GPUs.
  double devices_ratio = 1;
  std::string devices_text;  // "4 GPUs instead of 2"; "" where it takes as many.
  Risk risk = Risk::kMedium;
  Quality quality = Quality::kExact;
  Switchable switchable = Switchable::kDeployment;
  std::optional<Claim> claim;
  std::optional<Prior> prior;  // What others found.
  std::string choice;          // Of a `try` sweep: the value that is reported.
  std::string choice_method;   // How it was chosen.
  Standing standing = Standing::kNotRun;
  std::string reason;
  std::optional<Effect> effect;
  ClaimVerdict claim_verdict = ClaimVerdict::kNone;
  std::string claim_reason;
  std::optional<SpeedupFigure> mix;  // Over all points by time_share.
  std::optional<double> ceiling;     // Over all points by time_share.
  std::string ceiling_arithmetic;
  std::optional<Gain> gain;
  std::optional<double> break_even_gpu_hours;
  std::optional<double> gain_per_hour;      // Net GPU-hours per engineer-hour.
  std::optional<double> predicted_speedup;  // Of the cost model, where it was asked.
  std::optional<double> prediction_error;   // RelativeError(predicted, measured).
  std::optional<double> error;              // Lossy: the largest over points.
  bool ranks_apart = false;                 // Lossy beyond budget.max_error.
  std::optional<int> accepted_round;        // Of a campaign with rounds.
  Fidelity fidelity = Fidelity::kFull;      // The least of the points'.
  std::vector<std::string> needs;
  std::vector<std::string> excludes;
  std::vector<PointResult> points;
};

struct BreakdownShare {
  OpCategory category = OpCategory::kOther;
  double us = 0;
  double share = 0;  // Of the step; the shares of a breakdown sum to 1.
};

struct OpShare {
  OpCategory category = OpCategory::kOther;
  std::string op;
  double us = 0;
  double share = 0;
  std::optional<double> floor_us;
};

// The baseline at one point.
struct BaselinePoint {
  int point_index = 0;
  std::string label;
  Phase phase = Phase::kDecode;
  int64_t batch = 0;
  int64_t context = 0;
  double time_share = 0;
  std::string routing;  // "zipf 1.2 seed 1".
  Standing standing = Standing::kNotRun;
  std::string reason;
  std::optional<double> step_us;      // Mean.
  std::optional<double> step_low_us;  // Of a prediction: holds about four measurements of five.
  std::optional<double> step_high_us;
  std::optional<double> tokens_per_s;
  std::optional<double> noise;
  std::optional<double> detectable_effect;
  std::optional<SpeedupFigure> against_itself;  // A/A: should hold 1.
  std::optional<Effect> effect_against_itself;
  std::optional<double> drift;           // Last baseline samples over the first, minus 1.
  std::optional<double> drift_error;     // Its standard error.
  std::optional<double> unique_experts;  // Realised, mean over layers.
  std::optional<double> imbalance;
  std::vector<BreakdownShare> breakdown;  // By us, descending; empty: not measured.
  std::vector<OpShare> ops;
  double breakdown_step_us = 0;
  double residual_us = 0;  // Part of the step that no op claimed; booked as `host`.
  std::string breakdown_method;
};

struct SequenceStep {
  std::string id;
  std::string title;
  double effort_hours = 0;
  double cumulative_effort_hours = 0;
  double speedup = 1;  // Its own, measured against the baseline.
  // Product of the speedups so far, or priced together by the cost model: modelled.
  double expected_stack = 1;
  std::optional<double> measured_stack;  // Absent: nothing measured this stack.
  std::vector<std::string> on_at;        // Labels of points; empty: it is on everywhere.
};

// How reports name an intervention: of a sweep with the value that its figures are of,
// "kernel (moe.kernel=grouped)".
inline std::string NameOf(const std::string& id, const std::string& choice) {
  return choice.empty() ? id : id + " (" + choice + ")";
}

// An intervention in one round of a campaign.
struct RoundEntry {
  std::optional<int> place;  // In the ranking of the round.
  std::string id;
  std::string choice;
  Standing standing = Standing::kNotRun;
  std::optional<Effect> effect;
  std::optional<SpeedupFigure> mix;  // Against the round's baseline; of the confirmation, if any.
  std::optional<SpeedupFigure> selected_on;  // What made it be measured again.
  std::optional<double> ceiling;
  bool is_accepted = false;
  std::string reason;
};

struct RoundSummary {
  int round = 1;
  std::string accepted;                   // "": none, or none yet.
  std::vector<std::string> together;      // What it needs and brought along.
  std::vector<RoundEntry> interventions;  // As a ranking; none after the last acceptance.
  // Of the round's baseline, over the mix.
  std::optional<double> step_us;
  std::vector<BreakdownShare> breakdown;
};

// The final stack against the one without this part.
struct LeftOutPart {
  std::string id;
  std::optional<SpeedupFigure> mix;
  std::optional<Effect> effect;
  std::string reason;  // What was compared, or why there is no figure.
};

// Everything that was accepted, together against the campaign's baseline.
struct StackSummary {
  std::vector<std::string> ids;  // In order of acceptance.
  std::optional<SpeedupFigure> mix;
  std::optional<Effect> effect;
  // Of the parts alone against the campaign's baseline: multiplied at each point, then mixed.
  std::optional<SpeedupFigure> product;
  std::optional<SpeedupFigure>
      interaction;     // mix over product: under 1 they get in each other's way.
  std::string reason;  // Why something is absent.
  std::vector<LeftOutPart> left_out;
};

enum class RankingOrder { kNetGain, kImpact, kPerHour, kPareto };
LASTFLOP_ENUM_WORDS(RankingOrder, 4, {RankingOrder::kNetGain, "net_gain"},
                    {RankingOrder::kImpact, "impact"}, {RankingOrder::kPerHour, "per_hour"},
                    {RankingOrder::kPareto, "pareto"});

struct Ranking {
  std::string campaign_id;
  std::string campaign_name;
  std::string question;
  CampaignState state = CampaignState::kRunning;
  std::string answer;  // One sentence.
  RankingOrder order = RankingOrder::kNetGain;
  std::string order_note;  // How the ranking is ordered, ties included.
  // Of all verdicts together, and of each interval so that they hold together. Absent of
  // predictions, whose intervals are of the model's error (80%).
  std::optional<double> confidence;
  std::optional<double> interval_confidence;
  double min_effect = 0.01;
  std::vector<SequenceStep> sequence;
  std::string sequence_note;
  // Expected, of all of the sequence together. Absent without economics.gpu_hours, for an empty
  // one, and for what rounds accepted.
  std::optional<double> sequence_net_gpu_hours;
  // Placed ones by place, then lossy ones that rank apart, then n/a, each in a stable order.
  std::vector<RankedIntervention> interventions;
  std::vector<BaselinePoint> baseline;
  std::vector<RoundSummary> rounds;  // Empty for a campaign of one round.
  std::string rounds_note;           // How the rounds ended, or where they are.
  std::optional<StackSummary> stack;
  std::vector<BreakdownShare> breakdown;    // Of the mix: the average step of today's serving.
  std::optional<double> breakdown_step_us;  // Its time.
  std::map<std::string, std::string> environment;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

}  // namespace lastflop
