#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/trial.h"

namespace lastflop {

// The devices that a local run of a campaign gives workers to.
struct LocalDevices {
  std::vector<std::string> names;  // "cpu:0", or "cuda:0" ...
  bool are_fewer_than_ranks = false;
};

// From what this host has ("cuda:0" ... or "cpu:0"): the GPUs, at most `asked` of them (0: all),
// when the campaign's machine has some or is `auto`; else `asked` (0: `needed`) workers on the CPU.
// FailedPrecondition: a campaign for GPUs and no GPU that this build can use.
absl::StatusOr<LocalDevices> ChooseLocalDevices(const Campaign& campaign,
                                                const std::vector<std::string>& on_host, int asked,
                                                int needed);

// InvalidArgument where so few workers cannot run the baseline at any point: nothing could be
// measured. `fidelity` shard has one worker stand for all ranks.
absl::Status CheckHoldsBaseline(const std::vector<TrialSpec>& trials, size_t num_workers,
                                std::optional<Fidelity> fidelity);

// What lastflop-worker says that this host has.
absl::StatusOr<std::vector<std::string>> DevicesOnHost();

}  // namespace lastflop
