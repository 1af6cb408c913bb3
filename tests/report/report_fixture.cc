#include "tests/report/report_fixture.h"

#include <limits>
#include <string>
#include <utility>

namespace lastflop {
namespace {

SpeedupFigure Figure(double estimate, double half_width, int64_t num_pairs) {
  SpeedupFigure figure;
  figure.estimate = estimate;
  figure.low = estimate - half_width;
  figure.high = estimate + half_width;
  figure.num_pairs = num_pairs;
  figure.num_launches = 3;
  return figure;
}

PointResult MeasuredPoint(int index, const SpeedupFigure& figure, Effect effect,
                          double baseline_us) {
  PointResult point;
  point.point_index = index;
  point.label = index == 0 ? "decode b1 c4096" : "decode b64 c4096";
  point.batch = index == 0 ? 1 : 64;
  point.context = 4096;
  point.time_share = index == 0 ? 0.25 : 0.75;
  point.standing = Standing::kMeasured;
  point.speedup = figure;
  point.effect = effect;
  point.ceiling = 1.6;
  point.baseline_us = baseline_us;
  point.variant_us = baseline_us / figure.estimate;
  point.baseline_p50_us = baseline_us * 0.99;
  point.variant_p50_us = *point.variant_us * 0.99;
  point.baseline_p99_us = baseline_us * 1.05;
  point.variant_p99_us = *point.variant_us * 1.05;
  point.baseline_tokens_per_s = static_cast<double>(point.batch) / baseline_us * 1e6;
  point.variant_tokens_per_s = *point.baseline_tokens_per_s * figure.estimate;
  point.noise = 0.012;
  point.detectable_effect = 0.008;
  point.converged = true;
  point.throttled_share = 0;
  point.baseline_throttled_share = 0;
  point.variant_throttled_share = 0;
  return point;
}

PointResult MissingPoint(int index, Standing standing, std::string reason) {
  PointResult point = MeasuredPoint(index, Figure(1, 0, 0), Effect::kSame, 1000);
  PointResult missing;
  missing.point_index = point.point_index;
  missing.label = point.label;
  missing.batch = point.batch;
  missing.context = point.context;
  missing.time_share = point.time_share;
  missing.standing = standing;
  missing.reason = std::move(reason);
  return missing;
}

RankedIntervention Measured(int place, std::string id, const SpeedupFigure& mix, Effect effect,
                            double net_gain) {
  RankedIntervention one;
  one.place = place;
  one.id = std::move(id);
  one.effort = {.low_hours = 8, .likely_hours = 24, .high_hours = 40};
  one.standing = Standing::kMeasured;
  one.effect = effect;
  one.mix = mix;
  one.ceiling = 1.6;
  one.gain = Gain{.net_gpu_hours = net_gain, .low = net_gain - 400, .high = net_gain + 400};
  one.gain_per_hour = net_gain / 24;
  one.place_held = 1 - 0.125 * place;
  if (effect == Effect::kFaster) {
    one.pareto_layer = 1;
  }
  one.points = {MeasuredPoint(0, mix, effect, 4000), MeasuredPoint(1, mix, effect, 16000)};
  return one;
}

RankedIntervention FusedMoe() {
  RankedIntervention one =
      Measured(1, "fused-moe", Figure(1.213, 0.009, 96), Effect::kFaster, 5981.9);
  one.title = "One kernel for the routed experts";
  one.tier = 2;
  one.claim = Claim{.low = 1.1,
                    .high = 1.2,
                    .of = "step",
                    .batch_low = 1,
                    .batch_high = std::nullopt,
                    .source = "operator's estimate"};
  one.claim_verdict = ClaimVerdict::kExceeded;
  one.claim_reason = "1.1-1.2x claimed, measured 1.213x (1.204 to 1.222)";
  one.break_even_gpu_hours = 6833.5;
  one.ceiling_arithmetic = "decode b1 c4096: 4000.0 / (4000.0 - (2400.0 - 900.0)) = 1.600, us";
  return one;
}

RankedIntervention OneShot() {
  RankedIntervention one =
      Measured(2, "one-shot-all-reduce", Figure(1.004, 0.021, 96), Effect::kUndecided, -960);
  one.claim = Claim{.low = 1.1,
                    .high = 1.3,
                    .of = "step",
                    .batch_low = std::nullopt,
                    .batch_high = 8,
                    .source = "note 002"};
  one.claim_verdict = ClaimVerdict::kImpossible;
  one.claim_reason = "1.1-1.3x claimed, the ceiling is 1.049x: 4000 / (4000 - (200 - 13)) = 1.049";
  one.ceiling = 1.049;
  one.reason = "not converged: +/- 2.1%, asked 0.5%";
  return one;
}

RankedIntervention Missing(std::string id, Standing standing, std::string reason) {
  RankedIntervention one;
  one.id = std::move(id);
  one.effort = {.low_hours = 1, .likely_hours = 1, .high_hours = 1};
  one.standing = standing;
  one.reason = reason;
  one.points = {MissingPoint(0, standing, reason), MissingPoint(1, standing, reason)};
  return one;
}

BaselinePoint Baseline(int index, double step_us) {
  BaselinePoint point;
  point.point_index = index;
  point.label = index == 0 ? "decode b1 c4096" : "decode b64 c4096";
  point.batch = index == 0 ? 1 : 64;
  point.context = 4096;
  point.time_share = index == 0 ? 0.25 : 0.75;
  point.standing = Standing::kMeasured;
  point.step_us = step_us;
  point.tokens_per_s = static_cast<double>(point.batch) / step_us * 1e6;
  point.noise = 0.011;
  point.against_itself = Figure(1.001, 0.004, 96);
  point.effect_against_itself = Effect::kSame;
  point.drift = 0.007;
  point.unique_experts = index == 0 ? 8.0 : 102.4;
  point.imbalance = 1.3;
  point.breakdown_step_us = step_us;
  point.residual_us = 0.05 * step_us;
  point.breakdown_method = "host timeline";
  const std::pair<OpCategory, double> shares[] = {{OpCategory::kMoe, index == 0 ? 0.40 : 0.62},
                                                  {OpCategory::kAttention, 0.10},
                                                  {OpCategory::kDense, index == 0 ? 0.30 : 0.08},
                                                  {OpCategory::kCollective, 0.06},
                                                  {OpCategory::kLmHead, 0.05},
                                                  {OpCategory::kHost, 0.05},
                                                  {OpCategory::kRouter, 0.04}};
  for (const auto& [category, share] : shares) {
    point.breakdown.push_back({category, share * step_us, share});
  }
  point.ops = {{.category = OpCategory::kMoe,
                .op = "moe.gate_up",
                .us = 0.4 * step_us,
                .share = 0.4,
                .floor_us = 0.15 * step_us}};
  return point;
}

RoundEntry Entry(int place, std::string id, const SpeedupFigure& mix, Effect effect) {
  RoundEntry entry;
  entry.place = place;
  entry.id = std::move(id);
  entry.standing = Standing::kMeasured;
  entry.effect = effect;
  entry.mix = mix;
  entry.ceiling = 1.6;
  return entry;
}

// Two rounds that accept something, and the baseline after them.
std::vector<RoundSummary> ExampleRounds() {
  RoundSummary first;
  first.round = 1;
  first.accepted = "fused-moe";
  first.interventions = {Entry(1, "fused-moe", Figure(1.213, 0.009, 96), Effect::kFaster),
                         Entry(2, "separate-dequant", Figure(0.71, 0.006, 60), Effect::kSlower)};
  first.interventions[0].is_accepted = true;
  first.interventions[0].selected_on = Figure(1.226, 0.011, 96);
  first.step_us = 9143;
  first.breakdown = {{OpCategory::kMoe, 5165.8, 0.565}, {OpCategory::kDense, 3977.2, 0.435}};
  RoundSummary second;
  second.round = 2;
  second.accepted = "one-shot-all-reduce";
  second.together = {"peer-memory"};
  second.interventions = {
      Entry(1, "one-shot-all-reduce", Figure(1.052, 0.008, 96), Effect::kFaster)};
  second.interventions[0].is_accepted = true;
  second.interventions[0].selected_on = Figure(1.057, 0.008, 96);
  RoundEntry dropped;
  dropped.id = "separate-dequant";
  dropped.reason =
      "dropped out: it sets moe.kernel=grouped, and fused-moe, accepted in round 1, sets it to "
      "fused";
  second.interventions.push_back(dropped);
  second.step_us = 7537;
  second.breakdown = {{OpCategory::kMoe, 3560, 0.472}, {OpCategory::kDense, 3977, 0.528}};
  RoundSummary last;
  last.round = 3;
  return {first, second, last};
}

StackSummary ExampleStack() {
  StackSummary stack;
  stack.ids = {"fused-moe", "one-shot-all-reduce"};
  stack.mix = Figure(1.271, 0.01, 96);
  stack.effect = Effect::kFaster;
  stack.product = Figure(1.279, 0.03, 192);
  stack.product->origin = Origin::kModelled;
  stack.interaction = Figure(0.994, 0.02, 288);
  stack.interaction->origin = Origin::kModelled;
  stack.left_out = {{.id = "fused-moe", .mix = Figure(1.2, 0.01, 96), .effect = Effect::kFaster},
                    {.id = "one-shot-all-reduce",
                     .mix = Figure(1.052, 0.008, 96),
                     .effect = Effect::kFaster,
                     .reason = "its confirmation in round 2"}};
  return stack;
}

}  // namespace

const char kHostileName[] = "=a<b>&\"c', d=1+1|x\n</SCRIPT><!-- `*_[y](z) \x1b[31m";

Ranking ExampleRanking() {
  Ranking ranking;
  ranking.campaign_id = "c0001";
  ranking.campaign_name = "quickstart";
  ranking.question = "What makes Qwen3-30B-A3B decode faster on two cores, per engineer-hour?";
  ranking.state = CampaignState::kDone;
  ranking.answer =
      "Build fused-moe first: 1.213x (1.204 to 1.222) in the mix for 24 engineer-hours.";
  ranking.confidence = 0.95;
  ranking.interval_confidence = 0.95;
  ranking.order_note =
      "by expected net gain in GPU-hours; a speedup that is not proven counts as 1";
  ranking.sequence = {{.id = "fused-moe",
                       .title = "One kernel for the routed experts",
                       .effort_hours = 24,
                       .cumulative_effort_hours = 24,
                       .speedup = 1.213,
                       .expected_stack = 1.213,
                       .measured_stack = std::nullopt}};
  ranking.sequence_note = "the set with the largest expected gain within 120 engineer-hours";
  RankedIntervention slower =
      Measured(3, "separate-dequant", Figure(0.71, 0.006, 60), Effect::kSlower, -17300);
  slower.tier = 1;
  RankedIntervention lossy =
      Measured(4, "opportunistic-experts", Figure(1.32, 0.01, 90), Effect::kFaster, 9000);
  lossy.place.reset();
  lossy.place_held.reset();
  lossy.pareto_layer.reset();
  lossy.ranks_apart = true;
  lossy.quality = Quality::kLossy;
  lossy.error = 0.043;
  lossy.reason = "lossy: error 0.043, budget.max_error 0";
  ranking.interventions = {FusedMoe(),
                           OneShot(),
                           std::move(slower),
                           std::move(lossy),
                           Missing("l2-pinning", Standing::kUnsupported,
                                   "moe.l2_pin: the CPU has no persisting part of its cache"),
                           Missing("crashing", Standing::kFailed, "signal 9, 3 attempts")};
  ranking.baseline = {Baseline(0, 4000), Baseline(1, 16000)};
  ranking.interventions[0].accepted_round = 1;
  ranking.rounds = ExampleRounds();
  ranking.rounds_note = "the last of 2 rounds is over; accepted: fused-moe, one-shot-all-reduce";
  ranking.stack = ExampleStack();
  ranking.breakdown = {{OpCategory::kMoe, 5165.8, 0.565},  {OpCategory::kDense, 1234.3, 0.135},
                       {OpCategory::kAttention, 914, 0.1}, {OpCategory::kCollective, 548, 0.06},
                       {OpCategory::kLmHead, 457, 0.05},   {OpCategory::kHost, 457, 0.05},
                       {OpCategory::kRouter, 365.7, 0.04}};
  ranking.breakdown_step_us = 9143;
  ranking.environment = {
      {"backend", "cpu"}, {"device", "AMD EPYC, 2 cores"}, {"note", "ranks share cores"}};
  ranking.assumptions = {
      "chance that an intervention survives production: low risk 0.95, medium "
      "0.80, high 0.50",
      "an engineer-hour costs 40 GPU-hours"};
  ranking.warnings = {"2 of 48 MoE layers are kept and stand for all: their times are scaled"};
  return ranking;
}

Ranking HostileRanking() {
  Ranking ranking = ExampleRanking();
  ranking.campaign_name = kHostileName;
  ranking.question = kHostileName;
  ranking.answer = kHostileName;
  ranking.warnings = {kHostileName};
  ranking.environment[kHostileName] = kHostileName;
  for (RankedIntervention& one : ranking.interventions) {
    one.id = kHostileName;
    one.title = kHostileName;
    one.reason = kHostileName;
    one.claim_reason = kHostileName;
    one.mix.reset();
    one.ceiling = std::numeric_limits<double>::quiet_NaN();
    one.error = std::numeric_limits<double>::infinity();
  }
  ranking.interventions.front().mix = Figure(1.2, 0.01, 9);
  ranking.rounds_note = kHostileName;
  for (RoundSummary& round : ranking.rounds) {
    round.accepted = kHostileName;
    round.together = {kHostileName};
    for (RoundEntry& one : round.interventions) {
      one.id = kHostileName;
      one.reason = kHostileName;
      one.ceiling = std::numeric_limits<double>::quiet_NaN();
    }
  }
  ranking.stack->ids = {kHostileName, kHostileName};
  ranking.stack->left_out[0].id = kHostileName;
  ranking.stack->left_out[0].reason = kHostileName;
  return ranking;
}

CampaignResults ExampleResults() {
  CampaignResults results;
  results.campaign_id = "c0001";
  results.source_yaml = "schema: 1\n";
  results.campaign.points.push_back({.phase = Phase::kDecode, .batch = 1, .context = 4096});
  TrialRecord trial;
  trial.spec.trial_id = "t0001";
  trial.spec.intervention_id = "fused-moe";
  trial.state = TrialState::kDone;
  results.trials = {trial};
  AttemptRecord good;
  good.result.attempt_id = "t0001-a1";
  good.result.trial_id = "t0001";
  good.state = AttemptState::kDone;
  good.authoritative = true;
  good.worker_ids = {"cpu-0", "cpu-1"};
  PairSample sample;
  sample.pair = {.launch = 0, .draw = 7, .baseline_us = 100, .variant_us = 80};
  good.result.samples = {sample};
  good.result.breakdown = {{OpCategory::kMoe, "moe.gate_up", 40, 2, 12.5},
                           {OpCategory::kHost, "host", 60, 1, 0}};
  good.result.breakdown_step_us = 100;
  AttemptRecord failed = good;
  failed.result.attempt_id = "t0001-a0";
  failed.state = AttemptState::kFailed;
  failed.result.samples.clear();
  failed.result.failure = Failure{.kind = FailureKind::kCrashed, .message = "signal 9", .rank = 1};
  AttemptRecord late = good;
  late.result.attempt_id = "t0001-a2";
  late.authoritative = false;
  late.result.samples.front().pair.variant_us = std::numeric_limits<double>::quiet_NaN();
  results.attempts = {failed, good, late};
  return results;
}

}  // namespace lastflop
