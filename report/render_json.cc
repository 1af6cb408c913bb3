#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/plan.h"
#include "report/render.h"

namespace lastflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportSchema = 1;

// The number, or null where it is not known; JSON has no NaN and no infinity.
Json Number(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

template <typename E>
Json Word(std::optional<E> value) {
  return value.has_value() ? Json(std::string(ToWord(*value))) : Json(nullptr);
}

template <typename E>
Json Word(E value) {
  return Json(std::string(ToWord(value)));
}

Json FigureJson(const std::optional<SpeedupFigure>& figure) {
  if (!figure.has_value()) {
    return {{"estimate", nullptr},
            {"low", nullptr},
            {"high", nullptr},
            {"pairs", nullptr},
            {"origin", nullptr}};
  }
  return {{"estimate", Number(figure->estimate)},
          {"low", Number(figure->low)},
          {"high", Number(figure->high)},
          {"pairs", figure->num_pairs},
          {"origin", Word(figure->origin)}};
}

Json ClaimJson(const std::optional<Claim>& claim) {
  if (!claim.has_value()) {
    return nullptr;
  }
  return {{"low", Number(claim->low)}, {"high", Number(claim->high)}, {"of", claim->of}};
}

Json PointJson(const PointResult& point) {
  return {{"point", point.label},
          {"phase", Word(point.phase)},
          {"batch", point.batch},
          {"context", point.context},
          {"time_share", Number(point.time_share)},
          {"routing", point.routing},
          {"choice", point.choice},
          {"standing", Word(point.standing)},
          {"effect", Word(point.effect)},
          {"speedup", FigureJson(point.speedup)},
          {"tokens_per_s",
           {{"baseline", Number(point.baseline_tokens_per_s)},
            {"variant", Number(point.variant_tokens_per_s)}}},
          {"baseline_us",
           {{"mean", Number(point.baseline_us)},
            {"p50", Number(point.baseline_p50_us)},
            {"p99", Number(point.baseline_p99_us)}}},
          {"variant_us",
           {{"mean", Number(point.variant_us)},
            {"p50", Number(point.variant_p50_us)},
            {"p99", Number(point.variant_p99_us)}}},
          {"ceiling", Number(point.ceiling)},
          {"noise", Number(point.noise)},
          {"detectable_effect", Number(point.detectable_effect)},
          {"converged", point.speedup.has_value() ? Json(point.converged) : Json(nullptr)},
          {"throttled_share", Number(point.throttled_share)},
          {"throttled_shares",
           {{"baseline", Number(point.baseline_throttled_share)},
            {"variant", Number(point.variant_throttled_share)}}},
          {"power_limited",
           point.baseline_throttled_share.has_value() ? Json(point.is_power_limited) : nullptr},
          {"error", Number(point.error)},
          {"changed_routes", Number(point.changed_routes)},
          {"fidelity", Word(point.fidelity)},
          {"enabled", point.enabled},
          {"reason", point.reason}};
}

Json InterventionJson(const RankedIntervention& one) {
  Json json = {{"place", one.place.has_value() ? Json(*one.place) : Json(nullptr)},
               {"id", one.id},
               {"title", one.title},
               {"tier", one.tier},
               {"effort_hours", Number(one.effort.likely_hours)},
               {"risk", Word(one.risk)},
               {"quality", Word(one.quality)},
               {"claim", ClaimJson(one.claim)},
               {"ceiling", Number(one.ceiling)},
               {"ceiling_arithmetic", one.ceiling_arithmetic},
               {"speedup", FigureJson(one.mix)}};
  json["net_gain_gpu_hours"] =
      Number(one.gain.has_value() ? std::optional(one.gain->net_gpu_hours) : std::nullopt);
  json["net_gain_interval"] = {
      {"low", Number(one.gain.has_value() ? one.gain->low : std::nullopt)},
      {"high", Number(one.gain.has_value() ? one.gain->high : std::nullopt)}};
  json["break_even_gpu_hours"] = Number(one.break_even_gpu_hours);
  json["prior"] = nullptr;
  if (one.prior.has_value()) {
    json["prior"] = {{"result", one.prior->result}, {"source", one.prior->source}};
  }
  json["devices_ratio"] = one.devices_ratio;
  json["per_hour"] = Number(one.gain_per_hour);
  json["standing"] = Word(one.standing);
  json["effect"] = Word(one.effect);
  json["claim_verdict"] = Word(one.claim_verdict);
  json["claim_reason"] = one.claim_reason;
  json["reason"] = one.reason;
  json["place_held"] = Number(one.place_held);
  json["pareto_layer"] = one.pareto_layer.has_value() ? Json(*one.pareto_layer) : Json(nullptr);
  json["choice"] = one.choice;
  json["choice_method"] = one.choice_method;
  json["predicted"] = Number(one.predicted_speedup);
  json["prediction_error"] = Number(one.prediction_error);
  json["fidelity"] = Word(one.fidelity);
  json["error"] = Number(one.error);
  json["accepted_round"] =
      one.accepted_round.has_value() ? Json(*one.accepted_round) : Json(nullptr);
  json["points"] = Json::array();
  for (const PointResult& point : one.points) {
    json["points"].push_back(PointJson(point));
  }
  return json;
}

Json BreakdownJson(const std::vector<BreakdownShare>& breakdown) {
  Json json = Json::array();
  for (const BreakdownShare& part : breakdown) {
    json.push_back({{"category", Word(part.category)},
                    {"us", Number(part.us)},
                    {"share", Number(part.share)}});
  }
  return json;
}

Json BaselineJson(const BaselinePoint& point) {
  Json ops = Json::array();
  for (const OpShare& op : point.ops) {
    ops.push_back({{"op", op.op},
                   {"category", Word(op.category)},
                   {"us", Number(op.us)},
                   {"share", Number(op.share)},
                   {"floor_us", Number(op.floor_us)}});
  }
  return {{"point", point.label},
          {"phase", Word(point.phase)},
          {"batch", point.batch},
          {"context", point.context},
          {"time_share", Number(point.time_share)},
          {"routing", point.routing},
          {"standing", Word(point.standing)},
          {"reason", point.reason},
          {"step_us", Number(point.step_us)},
          {"tokens_per_s", Number(point.tokens_per_s)},
          {"noise", Number(point.noise)},
          {"against_itself", FigureJson(point.against_itself)},
          {"effect_against_itself", Word(point.effect_against_itself)},
          {"drift", Number(point.drift)},
          {"drift_error", Number(point.drift_error)},
          {"unique_experts", Number(point.unique_experts)},
          {"imbalance", Number(point.imbalance)},
          {"breakdown_method", point.breakdown_method},
          {"breakdown", BreakdownJson(point.breakdown)},
          {"ops", std::move(ops)}};
}

Json SequenceJson(const Ranking& ranking) {
  Json json = Json::array();
  for (const SequenceStep& step : ranking.sequence) {
    json.push_back(
        {{"id", step.id},
         {"title", step.title},
         {"effort_hours", Number(step.effort_hours)},
         {"cumulative_effort_hours", Number(step.cumulative_effort_hours)},
         {"speedup", Number(step.speedup)},
         {"stack",
          {{"estimate", Number(step.expected_stack)}, {"origin", Word(Origin::kModelled)}}},
         {"measured_stack", Number(step.measured_stack)},
         {"on_at", step.on_at}});
  }
  return json;
}

Json RoundJson(const RoundSummary& round) {
  Json entries = Json::array();
  for (const RoundEntry& one : round.interventions) {
    entries.push_back({{"place", one.place.has_value() ? Json(*one.place) : Json(nullptr)},
                       {"id", one.id},
                       {"choice", one.choice},
                       {"standing", Word(one.standing)},
                       {"effect", Word(one.effect)},
                       {"speedup", FigureJson(one.mix)},
                       {"selected_on", FigureJson(one.selected_on)},
                       {"ceiling", Number(one.ceiling)},
                       {"accepted", one.is_accepted},
                       {"reason", one.reason}});
  }
  return {{"round", round.round},
          {"accepted", round.accepted.empty() ? Json(nullptr) : Json(round.accepted)},
          {"together", round.together},
          {"step_us", Number(round.step_us)},
          {"breakdown", BreakdownJson(round.breakdown)},
          {"interventions", std::move(entries)}};
}

Json StackJson(const std::optional<StackSummary>& stack) {
  if (!stack.has_value()) {
    return nullptr;
  }
  Json left_out = Json::array();
  for (const LeftOutPart& part : stack->left_out) {
    left_out.push_back({{"id", part.id},
                        {"speedup", FigureJson(part.mix)},
                        {"effect", Word(part.effect)},
                        {"reason", part.reason}});
  }
  return {{"ids", stack->ids},
          {"speedup", FigureJson(stack->mix)},
          {"effect", Word(stack->effect)},
          {"product_of_parts", FigureJson(stack->product)},
          {"interaction", FigureJson(stack->interaction)},
          {"left_out", std::move(left_out)},
          {"reason", stack->reason}};
}

Json ReportJson(const Ranking& ranking) {
  Json json;
  json["schema"] = kReportSchema;
  json["campaign"] = ranking.campaign_name;
  json["campaign_id"] = ranking.campaign_id;
  json["state"] = Word(ranking.state);
  json["question"] = ranking.question;
  json["answer"] = ranking.answer;
  json["sequence"] = SequenceJson(ranking);
  json["sequence_note"] = ranking.sequence_note;
  json["order"] = Word(ranking.order);
  json["order_note"] = ranking.order_note;
  json["confidence"] = Number(ranking.confidence);
  json["interval_confidence"] = Number(ranking.interval_confidence);
  json["min_effect"] = Number(ranking.min_effect);
  json["ranking"] = Json::array();
  for (const RankedIntervention& one : ranking.interventions) {
    json["ranking"].push_back(InterventionJson(one));
  }
  json["rounds"] = Json::array();
  for (const RoundSummary& round : ranking.rounds) {
    json["rounds"].push_back(RoundJson(round));
  }
  json["rounds_note"] = ranking.rounds_note;
  json["stack"] = StackJson(ranking.stack);
  json["breakdown"] = BreakdownJson(ranking.breakdown);
  json["breakdown_step_us"] = Number(ranking.breakdown_step_us);
  json["baseline"] = Json::array();
  for (const BaselinePoint& point : ranking.baseline) {
    json["baseline"].push_back(BaselineJson(point));
  }
  json["environment"] = Json::object();
  for (const auto& [key, value] : ranking.environment) {
    json["environment"][key] = value;
  }
  json["assumptions"] = ranking.assumptions;
  json["warnings"] = ranking.warnings;
  return json;
}

// Bytes that are no UTF-8 are replaced: the file stays valid.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json CheckJson(const CheckResult& check) {
  if (!check.ran) {
    return nullptr;
  }
  return {{"ok", check.ok},
          {"max_error", Number(check.max_error)},
          {"tolerance", Number(check.tolerance)},
          {"error_to_baseline", Number(check.error_to_baseline)},
          {"changed_routes", Number(check.changed_routes)},
          {"detail", check.detail}};
}

Json FailureJson(const std::optional<Failure>& failure) {
  if (!failure.has_value()) {
    return nullptr;
  }
  return {{"kind", Word(failure->kind)},
          {"message", failure->message},
          {"rank", failure->rank < 0 ? Json(nullptr) : Json(failure->rank)}};
}

Json EntriesJson(const std::vector<BreakdownEntry>& entries) {
  Json json = Json::array();
  for (const BreakdownEntry& entry : entries) {
    json.push_back({{"op", entry.op},
                    {"category", Word(entry.category)},
                    {"us", Number(entry.us)},
                    {"count", entry.count},
                    // A floor of 0 means that the machine has no numbers for it.
                    {"floor_us", entry.floor_us > 0 ? Number(entry.floor_us) : Json(nullptr)}});
  }
  return json;
}

// Whether it came as far as timing.
bool HasTimes(const AttemptResult& result) { return !result.samples.empty(); }

Json AttemptJson(const AttemptRecord& attempt) {
  const AttemptResult& result = attempt.result;
  return {
      {"attempt_id", result.attempt_id},
      {"launch", result.launch},
      {"state", Word(attempt.state)},
      {"authoritative", attempt.authoritative},
      {"has_report", attempt.has_report},
      {"worker_ids", attempt.worker_ids},
      {"leased_at_ms", attempt.leased_at_ms},
      {"started_at_ms", attempt.started_at_ms},
      {"ended_at_ms", attempt.ended_at_ms},
      {"outcome", attempt.outcome},
      {"failure", FailureJson(result.failure)},
      {"check_before", CheckJson(result.check_before)},
      {"check_after", CheckJson(result.check_after)},
      {"effective_baseline", result.effective_baseline},
      {"effective_variant", result.effective_variant},
      {"effective_note", result.effective_note},
      {"fidelity", Word(result.fidelity)},
      {"warm", result.warm},
      // As text: of a number so long, readers of JSON keep 53 bits.
      {"data_seed", absl::StrCat(result.data_seed)},
      {"data_checksum", result.data_checksum},
      {"sampling_s", Number(HasTimes(result) ? std::optional(result.sampling_s) : std::nullopt)},
      // Taken at the end of the setup.
      {"setup_s", Number(HasTimes(result) ? std::optional(result.setup_s) : std::nullopt)},
      {"capture_us", Number(result.capture_us)},
      {"breakdown", EntriesJson(result.breakdown)},
      {"breakdown_step_us",
       Number(result.breakdown.empty() ? std::nullopt : std::optional(result.breakdown_step_us))},
      {"num_samples", result.samples.size()},
      {"environment", result.environment},
      {"warnings", result.warnings}};
}

void AppendSamples(const AttemptRecord& attempt, Json& samples) {
  for (const PairSample& sample : attempt.result.samples) {
    samples.push_back({{"attempt_id", attempt.result.attempt_id},
                       {"authoritative", attempt.authoritative},
                       {"launch", sample.pair.launch},
                       {"draw", absl::StrCat(sample.pair.draw)},
                       {"baseline_us", Number(sample.pair.baseline_us)},
                       {"variant_us", Number(sample.pair.variant_us)},
                       {"variant_first", sample.variant_first},
                       {"throttled", sample.pair.throttled},
                       {"baseline_throttled", sample.pair.baseline_throttled},
                       {"variant_throttled", sample.pair.variant_throttled},
                       {"baseline_wait_us", Number(sample.baseline_wait_us)},
                       {"variant_wait_us", Number(sample.variant_wait_us)},
                       {"unique_experts", Number(sample.unique_experts)},
                       {"imbalance", Number(sample.imbalance)}});
  }
}

// Whether all its launches are measured, so that it may have converged.
bool IsMeasured(const TrialRecord& trial) {
  return trial.state == TrialState::kDone && !trial.failure.has_value() &&
         !trial.spec.settled.has_value();
}

Json TrialJson(const TrialRecord& trial, const CampaignResults& results) {
  const auto point = static_cast<size_t>(trial.spec.point_index);
  Json json = {{"trial_id", trial.spec.trial_id},
               {"intervention", trial.spec.intervention_id},
               {"choice", trial.spec.choice},
               {"round", trial.spec.round},
               {"role", Word(trial.spec.role)},
               {"point", point < results.campaign.points.size()
                             ? Json(results.campaign.points[point].Label())
                             : Json(nullptr)},
               {"state", Word(trial.state)},
               {"reason", trial.reason},
               {"failure", FailureJson(trial.failure)},
               {"converged", IsMeasured(trial) ? Json(trial.converged) : Json(nullptr)},
               {"num_attempts", trial.num_attempts},
               {"settled", Word(trial.spec.settled)},
               {"settled_reason", trial.spec.settled_reason},
               {"baseline_plan", CanonicalText(trial.spec.baseline)},
               {"variant_plan", CanonicalText(trial.spec.variant)},
               {"attempts", Json::array()},
               {"samples", Json::array()}};
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempt.result.trial_id == trial.spec.trial_id) {
      json["attempts"].push_back(AttemptJson(attempt));
      AppendSamples(attempt, json["samples"]);
    }
  }
  return json;
}

}  // namespace

std::string RenderJson(const Ranking& ranking) { return Dump(ReportJson(ranking)); }

std::string ExportJson(const Ranking& ranking, const CampaignResults& results) {
  Json json = ReportJson(ranking);
  json["source_yaml"] = results.source_yaml;
  json["trials"] = Json::array();
  for (const TrialRecord& trial : results.trials) {
    json["trials"].push_back(TrialJson(trial, results));
  }
  return Dump(json);
}

}  // namespace lastflop
