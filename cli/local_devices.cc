#include "cli/local_devices.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/processes.h"
#include "common/one_line.h"
#include "common/share_path.h"
#include "common/status_macros.h"

namespace lastflop {

absl::StatusOr<LocalDevices> ChooseLocalDevices(const Campaign& campaign,
                                                const HostDeviceList& on_host, int asked,
                                                int needed) {
  std::vector<std::string> gpus;
  std::copy_if(on_host.names.begin(), on_host.names.end(), std::back_inserter(gpus),
               [](const std::string& device) { return absl::StartsWith(device, "cuda:"); });
  const bool wants_gpus =
      campaign.machine_auto ? !gpus.empty() : campaign.machine.backend == "cuda";
  LocalDevices devices;
  if (campaign.machine_auto || wants_gpus) {
    devices.warning = on_host.unused_gpus;
  }
  if (!wants_gpus) {
    for (int i = 0; i < (asked > 0 ? asked : needed); ++i) {
      devices.names.push_back(absl::StrCat("cpu:", i));
    }
    return devices;
  }
  if (gpus.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the campaign is for ", campaign.machine.name, " and ",
                     on_host.unused_gpus.empty() ? "this host has no GPU that this build can use "
                                                   "(`lastflop doctor` says why)"
                                                 : on_host.unused_gpus,
                     "; --set machine=auto measures the CPU instead"));
  }
  if (asked > static_cast<int>(gpus.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("--workers ", asked, ": this host has ", gpus.size(), " GPUs"));
  }
  if (asked > 0) {
    gpus.resize(static_cast<size_t>(asked));
  }
  devices.are_fewer_than_ranks = static_cast<int>(gpus.size()) < needed;
  devices.names = std::move(gpus);
  return devices;
}

absl::Status CheckHoldsBaseline(const std::vector<TrialSpec>& trials, size_t num_workers,
                                std::optional<Fidelity> fidelity) {
  if (fidelity == Fidelity::kShard) {
    return absl::OkStatus();
  }
  int64_t least = 0;
  for (const TrialSpec& trial : trials) {
    if (trial.intervention_id == kBaselineId && !trial.settled.has_value()) {
      const int64_t ranks = trial.baseline.num_ranks();
      least = least == 0 ? ranks : std::min(least, ranks);
    }
  }
  if (least <= static_cast<int64_t>(num_workers)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the baseline has ", least, " ranks, a worker each, and --workers or this host ",
                   "allows ", num_workers, ": nothing could be measured"));
}

absl::StatusOr<HostDeviceList> DevicesOnHost() {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::string text,
      OutputOf({absl::StrCat(directory, "/lastflop-worker"), "--print", "devices"}));
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.contains("devices")) {
    return absl::InternalError("lastflop-worker does not say which devices this host has");
  }
  return HostDeviceList{.names = document.at("devices").get<std::vector<std::string>>(),
                        .unused_gpus = document.value("unused_gpus", "")};
}

void WarnOfUnusedGpus(const std::string& why, std::ostream& err) {
  if (!why.empty()) {
    err << "WARNING: " << PlainLines(why) << "\n";
  }
}

}  // namespace lastflop
