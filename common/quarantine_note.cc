#include "common/quarantine_note.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr absl::string_view kSubject = "worker ";
constexpr absl::string_view kVerb = " is quarantined: ";

}  // namespace

std::string QuarantineNote(absl::string_view worker_id, absl::string_view reason,
                           absl::string_view failure) {
  return absl::StrCat(kSubject, worker_id, kVerb, reason, ": ", failure);
}

bool IsQuarantineNote(absl::string_view outcome) {
  return absl::StartsWith(outcome, kSubject) && absl::StrContains(outcome, kVerb);
}

}  // namespace lastflop
