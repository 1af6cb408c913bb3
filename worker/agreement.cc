#include "worker/agreement.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// A rank's slot: its status code, then the message, cut to what fits.
struct Slot {
  int code = 0;
  char message[4000] = {};
};

Failure RankLost(const absl::Status& status) {
  return Failure{.kind = KindOf(status), .message = std::string(status.message()), .rank = -1};
}

}  // namespace

FailureKind KindOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return FailureKind::kUnsupported;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted:
      return FailureKind::kInfeasible;
    case absl::StatusCode::kFailedPrecondition:
      return FailureKind::kWrongResult;
    case absl::StatusCode::kAborted:
      return FailureKind::kRankLost;
    case absl::StatusCode::kDeadlineExceeded:
      return FailureKind::kTimeout;
    case absl::StatusCode::kDataLoss:
      return FailureKind::kDeviceFault;
    default:
      return FailureKind::kInternal;
  }
}

absl::StatusOr<Agreement> Agreement::Create(Gang& gang) {
  LASTFLOP_ASSIGN_OR_RETURN(Gang::SharedMemory memory, gang.MapShared(sizeof(Slot)));
  return Agreement(gang, std::move(memory));
}

std::optional<Failure> Agreement::Agree(const absl::Status& status) {
  auto* own = reinterpret_cast<Slot*>(memory_.of_rank[static_cast<size_t>(gang_.rank())]);
  own->code = static_cast<int>(status.code());
  const size_t size = status.message().copy(own->message, sizeof(own->message) - 1);
  own->message[size] = '\0';
  if (const absl::Status met = gang_.Barrier(); !met.ok()) {
    return status.ok() ? RankLost(met) : RankLost(status);
  }
  std::optional<Failure> failure;
  for (int rank = 0; rank < gang_.num_ranks() && !failure.has_value(); ++rank) {
    const auto* slot = reinterpret_cast<const Slot*>(memory_.of_rank[static_cast<size_t>(rank)]);
    if (slot->code != 0) {
      const absl::Status of_rank(static_cast<absl::StatusCode>(slot->code), slot->message);
      const std::string prefix =
          gang_.num_ranks() > 1 ? absl::StrCat("rank ", rank, ": ") : std::string();
      failure = Failure{.kind = KindOf(of_rank),
                        .message = absl::StrCat(prefix, of_rank.message()),
                        .rank = rank};
    }
  }
  // Nobody may write the next status before everybody has read this one.
  if (const absl::Status left = gang_.Barrier(); !left.ok() && !failure.has_value()) {
    return RankLost(left);
  }
  return failure;
}

}  // namespace lastflop
