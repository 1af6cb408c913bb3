#include "proto/codec.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/valid_utf8.h"

namespace lastflop {
namespace {

template <typename E>
absl::StatusOr<E> DecodeWord(absl::string_view field, absl::string_view word) {
  const std::optional<E> value = FromWord<E>(word);
  if (!value.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is \"", word, "\": one of ", AllWords<E>()));
  }
  return *value;
}

// Every double of a message goes through one of these, so that a NaN stops at the first binary that
// reads it.
class FiniteCheck {
 public:
  double operator()(absl::string_view field, double value) {
    if (status_.ok() && !std::isfinite(value)) {
      status_ = absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", not a number"));
    }
    return value;
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

absl::Status RequireId(absl::string_view field, absl::string_view id) {
  return id.empty() ? absl::InvalidArgumentError(absl::StrCat(field, " is empty"))
                    : absl::OkStatus();
}

std::chrono::milliseconds Milliseconds(double ms) {
  return std::chrono::milliseconds(std::llround(ms));
}

v1::PairSample ToProto(const PairSample& sample) {
  v1::PairSample message;
  message.set_launch(sample.pair.launch);
  message.set_draw(sample.pair.draw);
  message.set_baseline_us(sample.pair.baseline_us);
  message.set_variant_us(sample.pair.variant_us);
  message.set_throttled(sample.pair.throttled);
  message.set_baseline_throttled(sample.pair.baseline_throttled);
  message.set_variant_throttled(sample.pair.variant_throttled);
  message.set_variant_first(sample.variant_first);
  message.set_baseline_wait_us(sample.baseline_wait_us);
  message.set_variant_wait_us(sample.variant_wait_us);
  message.set_unique_experts(sample.unique_experts);
  message.set_imbalance(sample.imbalance);
  return message;
}

PairSample FromProto(const v1::PairSample& message, FiniteCheck& finite) {
  PairSample sample;
  sample.pair.launch = message.launch();
  sample.pair.draw = message.draw();
  sample.pair.baseline_us = finite("baseline_us", message.baseline_us());
  sample.pair.variant_us = finite("variant_us", message.variant_us());
  sample.pair.baseline_throttled = message.baseline_throttled();
  sample.pair.variant_throttled = message.variant_throttled();
  sample.pair.throttled =
      message.throttled() || message.baseline_throttled() || message.variant_throttled();
  sample.variant_first = message.variant_first();
  sample.baseline_wait_us = finite("baseline_wait_us", message.baseline_wait_us());
  sample.variant_wait_us = finite("variant_wait_us", message.variant_wait_us());
  sample.unique_experts = finite("unique_experts", message.unique_experts());
  sample.imbalance = finite("imbalance", message.imbalance());
  return sample;
}

v1::CheckResult ToProto(const CheckResult& check) {
  v1::CheckResult message;
  message.set_ok(check.ok);
  message.set_max_error(check.max_error);
  message.set_tolerance(check.tolerance);
  message.set_error_to_baseline(check.error_to_baseline);
  message.set_changed_routes(check.changed_routes);
  message.set_detail(ValidUtf8(check.detail));
  return message;
}

CheckResult FromProto(const v1::CheckResult& message, FiniteCheck& finite) {
  return {.ok = message.ok(),
          .max_error = finite("check.max_error", message.max_error()),
          .tolerance = finite("check.tolerance", message.tolerance()),
          .error_to_baseline = finite("check.error_to_baseline", message.error_to_baseline()),
          .changed_routes = finite("check.changed_routes", message.changed_routes()),
          .detail = message.detail()};
}

v1::BreakdownEntry ToProto(const BreakdownEntry& entry) {
  v1::BreakdownEntry message;
  message.set_category(std::string(ToWord(entry.category)));
  message.set_op(ValidUtf8(entry.op));
  message.set_us(entry.us);
  message.set_count(entry.count);
  message.set_floor_us(entry.floor_us);
  return message;
}

absl::StatusOr<BreakdownEntry> FromProto(const v1::BreakdownEntry& message, FiniteCheck& finite) {
  BreakdownEntry entry;
  LASTFLOP_ASSIGN_OR_RETURN(entry.category,
                            DecodeWord<OpCategory>("breakdown.category", message.category()));
  entry.op = message.op();
  entry.us = finite("breakdown.us", message.us());
  entry.count = message.count();
  entry.floor_us = finite("breakdown.floor_us", message.floor_us());
  return entry;
}

}  // namespace

v1::PlanText ToProto(const Plan& plan) {
  v1::PlanText message;
  message.set_text(CanonicalText(plan));
  message.set_hash(PlanHash(plan));
  return message;
}

absl::StatusOr<Plan> FromProto(const v1::PlanText& message) {
  absl::StatusOr<Plan> plan = ParseCanonicalText(message.text());
  if (!plan.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot honour the plan: ", plan.status().message()));
  }
  if (const std::string hash = PlanHash(*plan); hash != message.hash()) {
    return absl::FailedPreconditionError(absl::StrCat("the plan hashes to ", hash, " here and to ",
                                                      message.hash(),
                                                      " at its sender: the binaries differ"));
  }
  return plan;
}

v1::AttemptSpec ToProto(const AttemptSpec& attempt) {
  v1::AttemptSpec message;
  message.set_attempt_id(attempt.attempt_id);
  message.set_trial_id(attempt.trial_id);
  message.set_intervention_id(attempt.intervention_id);
  message.set_point_index(attempt.point_index);
  *message.mutable_baseline() = ToProto(attempt.baseline);
  *message.mutable_variant() = ToProto(attempt.variant);
  message.set_seed(attempt.seed);
  message.set_min_pairs(attempt.min_pairs);
  message.set_max_pairs(attempt.max_pairs);
  message.set_max_time_ms(static_cast<double>(attempt.max_time.count()));
  message.set_half_width(attempt.half_width);
  message.set_confidence(attempt.confidence);
  message.set_breakdown(attempt.breakdown);
  message.set_deadline_ms(attempt.deadline.count());
  return message;
}

absl::StatusOr<AttemptSpec> FromProto(const v1::AttemptSpec& message) {
  LASTFLOP_RETURN_IF_ERROR(RequireId("attempt_id", message.attempt_id()));
  LASTFLOP_RETURN_IF_ERROR(RequireId("trial_id", message.trial_id()));
  FiniteCheck finite;
  AttemptSpec attempt;
  attempt.attempt_id = message.attempt_id();
  attempt.trial_id = message.trial_id();
  attempt.intervention_id = message.intervention_id();
  attempt.point_index = message.point_index();
  LASTFLOP_ASSIGN_OR_RETURN(attempt.baseline, FromProto(message.baseline()));
  LASTFLOP_ASSIGN_OR_RETURN(attempt.variant, FromProto(message.variant()));
  attempt.seed = message.seed();
  attempt.min_pairs = message.min_pairs();
  attempt.max_pairs = message.max_pairs();
  attempt.half_width = finite("half_width", message.half_width());
  attempt.confidence = finite("confidence", message.confidence());
  const double max_time_ms = finite("max_time_ms", message.max_time_ms());
  LASTFLOP_RETURN_IF_ERROR(finite.status());
  attempt.max_time = Milliseconds(max_time_ms);
  attempt.breakdown = message.breakdown();
  attempt.deadline = std::chrono::milliseconds(message.deadline_ms());
  return attempt;
}

v1::LaunchSpec ToProto(const LaunchSpec& launch) {
  v1::LaunchSpec message;
  message.set_launch_key(launch.launch_key);
  message.set_campaign_id(launch.campaign_id);
  message.set_launch(launch.launch);
  message.set_campaign_json(launch.campaign_json);
  message.set_data_seed(launch.data_seed);
  message.mutable_env()->insert(launch.env.begin(), launch.env.end());
  return message;
}

absl::StatusOr<LaunchSpec> FromProto(const v1::LaunchSpec& message) {
  LASTFLOP_RETURN_IF_ERROR(RequireId("launch_key", message.launch_key()));
  LASTFLOP_RETURN_IF_ERROR(RequireId("campaign_id", message.campaign_id()));
  return LaunchSpec{.launch_key = message.launch_key(),
                    .campaign_id = message.campaign_id(),
                    .launch = message.launch(),
                    .campaign_json = message.campaign_json(),
                    .data_seed = message.data_seed(),
                    .env = {message.env().begin(), message.env().end()}};
}

v1::GangPlace ToProto(const GangPlace& place) {
  v1::GangPlace message;
  message.set_rank(place.rank);
  message.set_num_ranks(place.num_ranks);
  message.set_rendezvous(place.rendezvous);
  message.set_shard(place.shard);
  return message;
}

absl::StatusOr<GangPlace> FromProto(const v1::GangPlace& message) {
  if (message.num_ranks() < 1 || message.rank() < 0 || message.rank() >= message.num_ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", message.rank(), " of ", message.num_ranks(), " is no place"));
  }
  return GangPlace{.rank = message.rank(),
                   .num_ranks = message.num_ranks(),
                   .rendezvous = message.rendezvous(),
                   .shard = message.shard()};
}

v1::Failure ToProto(const Failure& failure) {
  v1::Failure message;
  message.set_kind(std::string(ToWord(failure.kind)));
  message.set_message(ValidUtf8(failure.message));
  message.set_rank(failure.rank);
  return message;
}

absl::StatusOr<Failure> FromProto(const v1::Failure& message) {
  LASTFLOP_ASSIGN_OR_RETURN(const FailureKind kind,
                            DecodeWord<FailureKind>("failure.kind", message.kind()));
  return Failure{.kind = kind, .message = message.message(), .rank = message.rank()};
}

v1::AttemptResult ToProto(const AttemptResult& result) {
  v1::AttemptResult message;
  message.set_attempt_id(result.attempt_id);
  message.set_trial_id(result.trial_id);
  message.set_launch(result.launch);
  if (result.failure.has_value()) {
    *message.mutable_failure() = ToProto(*result.failure);
  }
  message.mutable_samples()->Reserve(static_cast<int>(result.samples.size()));
  for (const PairSample& sample : result.samples) {
    *message.add_samples() = ToProto(sample);
  }
  if (result.check_before.ran) {
    *message.mutable_check_before() = ToProto(result.check_before);
  }
  if (result.check_after.ran) {
    *message.mutable_check_after() = ToProto(result.check_after);
  }
  for (const BreakdownEntry& entry : result.breakdown) {
    *message.add_breakdown() = ToProto(entry);
  }
  message.set_breakdown_method(result.breakdown_method);
  message.set_breakdown_step_us(result.breakdown_step_us);
  message.set_effective_baseline(result.effective_baseline);
  message.set_effective_variant(result.effective_variant);
  message.set_effective_note(ValidUtf8(result.effective_note));
  message.set_fidelity(std::string(ToWord(result.fidelity)));
  message.set_warm(result.warm);
  message.set_data_seed(result.data_seed);
  message.set_data_checksum(result.data_checksum);
  message.set_sampling_s(result.sampling_s);
  message.set_setup_s(result.setup_s);
  message.set_capture_us(result.capture_us);
  for (const auto& [key, value] : result.environment) {
    (*message.mutable_environment())[ValidUtf8(key)] = ValidUtf8(value);
  }
  for (const std::string& warning : result.warnings) {
    message.add_warnings(ValidUtf8(warning));
  }
  return message;
}

absl::StatusOr<AttemptResult> FromProto(const v1::AttemptResult& message) {
  LASTFLOP_RETURN_IF_ERROR(RequireId("attempt_id", message.attempt_id()));
  FiniteCheck finite;
  AttemptResult result;
  result.attempt_id = message.attempt_id();
  result.trial_id = message.trial_id();
  result.launch = message.launch();
  if (message.has_failure()) {
    LASTFLOP_ASSIGN_OR_RETURN(result.failure, FromProto(message.failure()));
  }
  result.samples.reserve(static_cast<size_t>(message.samples_size()));
  for (const v1::PairSample& sample : message.samples()) {
    result.samples.push_back(FromProto(sample, finite));
  }
  if (message.has_check_before()) {
    result.check_before = FromProto(message.check_before(), finite);
  }
  if (message.has_check_after()) {
    result.check_after = FromProto(message.check_after(), finite);
  }
  for (const v1::BreakdownEntry& entry : message.breakdown()) {
    LASTFLOP_ASSIGN_OR_RETURN(BreakdownEntry decoded, FromProto(entry, finite));
    result.breakdown.push_back(std::move(decoded));
  }
  result.breakdown_method = message.breakdown_method();
  result.breakdown_step_us = finite("breakdown_step_us", message.breakdown_step_us());
  result.effective_baseline = message.effective_baseline();
  result.effective_variant = message.effective_variant();
  result.effective_note = message.effective_note();
  LASTFLOP_ASSIGN_OR_RETURN(result.fidelity, DecodeWord<Fidelity>("fidelity", message.fidelity()));
  result.warm = message.warm();
  result.data_seed = message.data_seed();
  result.data_checksum = message.data_checksum();
  result.sampling_s = finite("sampling_s", message.sampling_s());
  result.setup_s = finite("setup_s", message.setup_s());
  result.capture_us = finite("capture_us", message.capture_us());
  result.environment = {message.environment().begin(), message.environment().end()};
  result.warnings = {message.warnings().begin(), message.warnings().end()};
  LASTFLOP_RETURN_IF_ERROR(finite.status());
  return result;
}

v1::TrialRecord ToProto(const TrialRecord& trial, const Campaign& campaign) {
  const TrialSpec& spec = trial.spec;
  v1::TrialRecord message;
  v1::TrialStatus& status = *message.mutable_status();
  status.set_trial_id(spec.trial_id);
  status.set_intervention_id(spec.intervention_id);
  status.set_choice(spec.choice);
  const auto point_index = static_cast<size_t>(spec.point_index);
  if (point_index < campaign.points.size()) {
    status.set_point(campaign.points[point_index].Label());
  }
  status.set_state(std::string(ToWord(trial.state)));
  status.set_reason(ValidUtf8(trial.reason));
  status.set_num_attempts(trial.num_attempts);
  message.set_point_index(spec.point_index);
  *message.mutable_baseline() = ToProto(spec.baseline);
  *message.mutable_variant() = ToProto(spec.variant);
  if (spec.settled.has_value()) {
    message.set_settled(std::string(ToWord(*spec.settled)));
  }
  message.set_settled_reason(ValidUtf8(spec.settled_reason));
  if (trial.failure.has_value()) {
    *message.mutable_failure() = ToProto(*trial.failure);
  }
  message.set_converged(trial.converged);
  message.set_round(spec.round);
  message.set_role(std::string(ToWord(spec.role)));
  return message;
}

absl::StatusOr<TrialRecord> FromProto(const v1::TrialRecord& message) {
  const v1::TrialStatus& status = message.status();
  LASTFLOP_RETURN_IF_ERROR(RequireId("trial_id", status.trial_id()));
  TrialRecord trial;
  trial.spec.trial_id = status.trial_id();
  trial.spec.intervention_id = status.intervention_id();
  trial.spec.choice = status.choice();
  trial.spec.point_index = message.point_index();
  LASTFLOP_ASSIGN_OR_RETURN(trial.spec.baseline, FromProto(message.baseline()));
  LASTFLOP_ASSIGN_OR_RETURN(trial.spec.variant, FromProto(message.variant()));
  if (!message.settled().empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(trial.spec.settled,
                              DecodeWord<Standing>("settled", message.settled()));
  }
  trial.spec.settled_reason = message.settled_reason();
  LASTFLOP_ASSIGN_OR_RETURN(trial.state, DecodeWord<TrialState>("state", status.state()));
  trial.reason = status.reason();
  trial.num_attempts = status.num_attempts();
  if (message.has_failure()) {
    LASTFLOP_ASSIGN_OR_RETURN(trial.failure, FromProto(message.failure()));
  }
  trial.converged = message.converged();
  trial.spec.round = std::max(1, message.round());
  if (!message.role().empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(trial.spec.role, DecodeWord<TrialRole>("role", message.role()));
  }
  return trial;
}

}  // namespace lastflop
