// The pieces in which Fetch() sends a campaign: see proto/codec.h.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "common/status_macros.h"
#include "proto/codec.h"
#include "proto/valid_utf8.h"

namespace lastflop {
namespace {

v1::AttemptRecord WithoutResult(const AttemptRecord& attempt) {
  v1::AttemptRecord message;
  message.set_attempt_id(attempt.result.attempt_id);
  message.set_trial_id(attempt.result.trial_id);
  message.set_launch(attempt.result.launch);
  message.set_state(std::string(ToWord(attempt.state)));
  message.set_authoritative(attempt.authoritative);
  for (const std::string& worker_id : attempt.worker_ids) {
    message.add_worker_ids(worker_id);
  }
  message.set_leased_at_ms(attempt.leased_at_ms);
  message.set_started_at_ms(attempt.started_at_ms);
  message.set_ended_at_ms(attempt.ended_at_ms);
  message.set_outcome(ValidUtf8(attempt.outcome));
  return message;
}

absl::StatusOr<AttemptRecord> Decode(const v1::AttemptRecord& message) {
  AttemptRecord attempt;
  const std::optional<AttemptState> state = FromWord<AttemptState>(message.state());
  if (!state.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("attempt state is \"", message.state(),
                                                   "\": one of ", AllWords<AttemptState>()));
  }
  attempt.state = *state;
  attempt.authoritative = message.authoritative();
  attempt.worker_ids = {message.worker_ids().begin(), message.worker_ids().end()};
  attempt.leased_at_ms = message.leased_at_ms();
  attempt.started_at_ms = message.started_at_ms();
  attempt.ended_at_ms = message.ended_at_ms();
  attempt.outcome = message.outcome();
  attempt.has_report = message.has_result();
  if (attempt.has_report) {
    LASTFLOP_ASSIGN_OR_RETURN(attempt.result, FromProto(message.result()));
  }
  attempt.result.attempt_id = message.attempt_id();
  attempt.result.trial_id = message.trial_id();
  attempt.result.launch = message.launch();
  return attempt;
}

absl::Status ReadHeader(const v1::CampaignHeader& header, CampaignResults& results) {
  LASTFLOP_ASSIGN_OR_RETURN(const CampaignSummary summary, FromProto(header.summary()));
  results.campaign_id = summary.campaign_id;
  results.state = summary.state;
  results.created_at_ms = summary.created_at_ms;
  results.ended_at_ms = header.ended_at_ms();
  results.reason = header.reason();
  LASTFLOP_ASSIGN_OR_RETURN(results.campaign, CampaignFromJson(header.campaign_json()));
  results.source_yaml = header.source_yaml();
  results.source_name = header.source_name();
  LASTFLOP_ASSIGN_OR_RETURN(results.machine, MachineFromJson(header.machine_json()));
  return absl::OkStatus();
}

v1::CampaignHeader HeaderOf(const CampaignResults& results) {
  v1::CampaignHeader header;
  *header.mutable_summary() = ToProto(Summarize(results));
  header.set_campaign_json(ToJson(results.campaign));
  header.set_source_yaml(ValidUtf8(results.source_yaml));
  header.set_source_name(ValidUtf8(results.source_name));
  header.set_machine_json(ToJson(results.machine));
  header.set_ended_at_ms(results.ended_at_ms);
  header.set_reason(ValidUtf8(results.reason));
  return header;
}

}  // namespace

std::vector<v1::AttemptRecord> ToPieces(const AttemptRecord& attempt) {
  std::vector<v1::AttemptRecord> pieces = {WithoutResult(attempt)};
  if (!attempt.has_report) {
    return pieces;
  }
  AttemptResult first = attempt.result;
  std::vector<PairSample> samples = std::move(first.samples);
  first.samples.clear();
  *pieces.front().mutable_result() = ToProto(first);
  for (size_t begin = 0; begin < samples.size(); begin += kSamplesPerPiece) {
    const size_t end = std::min(samples.size(), begin + kSamplesPerPiece);
    AttemptResult part;
    part.attempt_id = attempt.result.attempt_id;
    part.samples.assign(samples.begin() + static_cast<ptrdiff_t>(begin),
                        samples.begin() + static_cast<ptrdiff_t>(end));
    if (begin == 0) {
      pieces.front().mutable_result()->mutable_samples()->Swap(ToProto(part).mutable_samples());
      continue;
    }
    v1::AttemptRecord piece;
    piece.set_attempt_id(attempt.result.attempt_id);
    *piece.mutable_result() = ToProto(part);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

absl::Status AppendPiece(const v1::AttemptRecord& piece, std::vector<AttemptRecord>& attempts) {
  if (piece.attempt_id().empty()) {
    return absl::InvalidArgumentError("attempt_id is empty");
  }
  if (attempts.empty() || attempts.back().result.attempt_id != piece.attempt_id()) {
    LASTFLOP_ASSIGN_OR_RETURN(AttemptRecord attempt, Decode(piece));
    attempts.push_back(std::move(attempt));
    return absl::OkStatus();
  }
  LASTFLOP_ASSIGN_OR_RETURN(AttemptResult part, FromProto(piece.result()));
  if (!attempts.back().has_report) {
    return absl::InvalidArgumentError(
        absl::StrCat("further samples of attempt ", piece.attempt_id(), ", which has no result"));
  }
  std::vector<PairSample>& samples = attempts.back().result.samples;
  samples.insert(samples.end(), part.samples.begin(), part.samples.end());
  return absl::OkStatus();
}

v1::CampaignSummary ToProto(const CampaignSummary& summary) {
  v1::CampaignSummary message;
  message.set_campaign_id(summary.campaign_id);
  message.set_name(ValidUtf8(summary.name));
  message.set_state(std::string(ToWord(summary.state)));
  message.set_created_at_ms(summary.created_at_ms);
  message.set_num_trials(summary.num_trials);
  message.set_num_done(summary.num_done);
  message.set_num_failed(summary.num_failed);
  message.set_num_running(summary.num_running);
  message.set_num_pending(summary.num_pending);
  message.set_num_cancelled(summary.num_cancelled);
  message.set_num_lost_out(summary.num_lost_out);
  message.set_num_unmeasured(summary.num_unmeasured);
  return message;
}

absl::StatusOr<CampaignSummary> FromProto(const v1::CampaignSummary& message) {
  const std::optional<CampaignState> state = FromWord<CampaignState>(message.state());
  if (!state.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("campaign state is \"", message.state(),
                                                   "\": one of ", AllWords<CampaignState>()));
  }
  return CampaignSummary{.campaign_id = message.campaign_id(),
                         .name = message.name(),
                         .state = *state,
                         .created_at_ms = message.created_at_ms(),
                         .num_trials = message.num_trials(),
                         .num_done = message.num_done(),
                         .num_unmeasured = message.num_unmeasured(),
                         .num_failed = message.num_failed(),
                         .num_running = message.num_running(),
                         .num_pending = message.num_pending(),
                         .num_cancelled = message.num_cancelled(),
                         .num_lost_out = message.num_lost_out()};
}

std::vector<v1::FetchPiece> ToPieces(const CampaignResults& results) {
  std::vector<v1::FetchPiece> pieces;
  *pieces.emplace_back().mutable_header() = HeaderOf(results);
  for (const TrialRecord& trial : results.trials) {
    *pieces.emplace_back().mutable_trial() = ToProto(trial, results.campaign);
  }
  for (const AttemptRecord& attempt : results.attempts) {
    for (v1::AttemptRecord& piece : ToPieces(attempt)) {
      *pieces.emplace_back().mutable_attempt() = std::move(piece);
    }
  }
  return pieces;
}

absl::Status AppendPiece(const v1::FetchPiece& piece, CampaignResults& results) {
  if (piece.has_header()) {
    return ReadHeader(piece.header(), results);
  }
  if (results.campaign_id.empty()) {
    return absl::InvalidArgumentError("a campaign's first piece is not its header");
  }
  if (piece.has_trial()) {
    LASTFLOP_ASSIGN_OR_RETURN(TrialRecord trial, FromProto(piece.trial()));
    results.trials.push_back(std::move(trial));
    return absl::OkStatus();
  }
  if (piece.has_attempt()) {
    return AppendPiece(piece.attempt(), results.attempts);
  }
  return absl::InvalidArgumentError("a piece of a campaign is empty: the coordinator is newer");
}

}  // namespace lastflop
