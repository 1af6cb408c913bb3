#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "common/trial.h"

namespace lastflop {

// The kind of failure that a status of a backend stands for (worker/arm.h lists them).
FailureKind KindOf(const absl::Status& status);

// Lets the ranks of a gang agree on whether a stage went well: when one rank fails, all of them
// leave the stage with the same Failure, instead of waiting for each other. Not thread-safe; every
// rank calls Agree() the same number of times in the same order.
class Agreement {
 public:
  static absl::StatusOr<Agreement> Create(Gang& gang);

  // nullopt when every rank passed an OK status; else the failure of the lowest failing rank, with
  // that rank in the message when there are several. A broken gang is kRankLost.
  std::optional<Failure> Agree(const absl::Status& status);

 private:
  Agreement(Gang& gang, Gang::SharedMemory memory) : gang_(gang), memory_(std::move(memory)) {}

  Gang& gang_;  // Outlives this.
  Gang::SharedMemory memory_;
};

}  // namespace lastflop
