#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/attempt.h"
#include "common/campaign_results.h"
#include "common/campaign_summary.h"
#include "common/trial.h"
#include "lastflop/v1/attempt.pb.h"
#include "lastflop/v1/campaign.pb.h"

// Translation between the wire and the domain types: the only place that knows both. A round trip
// loses nothing. Decoding is strict: an unknown word, a missing id or a number that is not finite
// is InvalidArgument and names the field. Text of foreign origin (a child's stderr) is made valid
// UTF-8 on the way out, since protobuf refuses anything else on the way in.
namespace lastflop {

v1::PlanText ToProto(const Plan& plan);
// FailedPrecondition when the parsed plan does not hash to what its sender computed: one side
// dropped or does not know a field, and the attempt must be refused.
absl::StatusOr<Plan> FromProto(const v1::PlanText& message);

v1::AttemptSpec ToProto(const AttemptSpec& attempt);
// FailedPrecondition as for a plan.
absl::StatusOr<AttemptSpec> FromProto(const v1::AttemptSpec& message);

v1::LaunchSpec ToProto(const LaunchSpec& launch);
absl::StatusOr<LaunchSpec> FromProto(const v1::LaunchSpec& message);

v1::GangPlace ToProto(const GangPlace& place);
absl::StatusOr<GangPlace> FromProto(const v1::GangPlace& message);

v1::Failure ToProto(const Failure& failure);
absl::StatusOr<Failure> FromProto(const v1::Failure& message);

v1::AttemptResult ToProto(const AttemptResult& result);
absl::StatusOr<AttemptResult> FromProto(const v1::AttemptResult& message);

v1::TrialRecord ToProto(const TrialRecord& trial, const Campaign& campaign);
absl::StatusOr<TrialRecord> FromProto(const v1::TrialRecord& message);

// The pieces of one attempt, each with at most kSamplesPerPiece samples: at most 1 MB a message.
inline constexpr int kSamplesPerPiece = 5000;
std::vector<v1::AttemptRecord> ToPieces(const AttemptRecord& attempt);

// Adds a piece: a new attempt, or further samples of the last one.
absl::Status AppendPiece(const v1::AttemptRecord& piece, std::vector<AttemptRecord>& attempts);

v1::CampaignSummary ToProto(const CampaignSummary& summary);
absl::StatusOr<CampaignSummary> FromProto(const v1::CampaignSummary& message);

// The header, then the trials, then the attempts of a campaign, in the order a client expects.
std::vector<v1::FetchPiece> ToPieces(const CampaignResults& results);

// Adds a piece of Fetch() to `results`. InvalidArgument when the header is not first.
absl::Status AppendPiece(const v1::FetchPiece& piece, CampaignResults& results);

}  // namespace lastflop
