#include "step/collective_model.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/units.h"
#include "step/work.h"

namespace lastflop {
namespace {

constexpr double kCandidateBytes = 8;  // A logit and its token id.

}  // namespace

absl::StatusOr<double> ModelledCollectiveMicros(const Op& op, const Machine& machine) {
  double bytes = 0;
  if (const auto* reduce = std::get_if<AllReduceShape>(&op.shape);
      reduce != nullptr && reduce->ranks > 1) {
    const auto n = static_cast<double>(reduce->ranks);
    bytes = 2 * (n - 1) / n * static_cast<double>(reduce->elements) * PayloadBytes(reduce->payload);
  } else if (const auto* sample = std::get_if<SampleShape>(&op.shape);
             sample != nullptr && sample->ranks > 1) {
    bytes = static_cast<double>((sample->ranks - 1) * sample->num_tokens) * kCandidateBytes;
  } else if (const auto* exchange = std::get_if<AllToAllShape>(&op.shape);
             exchange != nullptr && exchange->ranks > 1) {
    bytes = op.work.link_bytes;
  } else {
    return 0.0;
  }
  const std::optional<double> link = machine.measured_link_gb_per_s.has_value()
                                         ? machine.measured_link_gb_per_s
                                         : machine.link_gb_per_s;
  if (!link.has_value() || !machine.collective_latency_us.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fidelity shard models ", op.name,
        " and needs link_gb_per_s and collective_latency_us: name a machine file that has them"));
  }
  return *machine.collective_latency_us + bytes / (*link * kBytesPerMicroPerGbPerS);
}

}  // namespace lastflop
