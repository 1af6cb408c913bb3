#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/trial.h"

namespace lastflop {

// What lastflop-worker says that this host has.
struct HostDeviceList {
  std::vector<std::string> names;  // "cuda:0" ... or "cpu:0".
  std::string unused_gpus;         // Why there are GPUs that this build does not use; "": no such.
};

// The devices that a local run of a campaign gives workers to.
struct LocalDevices {
  std::vector<std::string> names;  // "cpu:0", or "cuda:0" ...
  bool are_fewer_than_ranks = false;
  std::string warning;  // That it is not what a host with GPUs is asked for; "".
};

// From what this host has: the GPUs, at most `asked` of them (0: all),
// when the campaign's machine has some or is `auto`; else `asked` (0: `needed`) workers on the CPU.
// FailedPrecondition: a campaign for GPUs and no GPU that this build can use.
absl::StatusOr<LocalDevices> ChooseLocalDevices(const Campaign& campaign,
                                                const HostDeviceList& on_host, int asked,
                                                int needed);

// InvalidArgument where so few workers cannot run the baseline at any point: nothing could be
// measured. `fidelity` shard has one worker stand for all ranks.
absl::Status CheckHoldsBaseline(const std::vector<TrialSpec>& trials, size_t num_workers,
                                std::optional<Fidelity> fidelity);

absl::StatusOr<HostDeviceList> DevicesOnHost();

// Says `why` GPUs are there and not used, before anything is measured; nothing where it is "".
void WarnOfUnusedGpus(const std::string& why, std::ostream& err);

}  // namespace lastflop
