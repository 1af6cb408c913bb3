// run, resume and submit: what sets a campaign going.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "cli/load_campaign.h"
#include "cli/local_devices.h"
#include "cli/local_system.h"
#include "cli/read_results.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/expand_trials.h"
#include "common/one_line.h"
#include "common/plugin_files.h"
#include "common/shell_quote.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// As many workers as the largest plan that will be dispatched has ranks.
int WorkersNeeded(const std::vector<TrialSpec>& trials) {
  int64_t most = 1;
  for (const TrialSpec& trial : trials) {
    if (!trial.settled.has_value()) {
      most = std::max({most, trial.baseline.num_ranks(), trial.variant.num_ranks()});
    }
  }
  return static_cast<int>(most);
}

// Workers for every plan of the campaign. Where a host has fewer GPUs than a plan has ranks and
// nothing else was asked for, one rank stands for all.
absl::StatusOr<std::vector<std::string>> DevicesFor(const Campaign& campaign, int asked,
                                                    std::optional<Fidelity>& fidelity, Io& io) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<TrialSpec> trials, ExpandTrials(campaign));
  const int needed = WorkersNeeded(trials);
  LASTFLOP_ASSIGN_OR_RETURN(const HostDeviceList on_host, DevicesOnHost());
  LASTFLOP_ASSIGN_OR_RETURN(LocalDevices devices,
                            ChooseLocalDevices(campaign, on_host, asked, needed));
  WarnOfUnusedGpus(devices.warning, io.err);
  if (devices.are_fewer_than_ranks && !fidelity.has_value()) {
    fidelity = Fidelity::kShard;
    io.err << "this host has " << devices.names.size() << " of " << needed
           << " GPUs: fidelity shard, one rank is measured and collectives are modelled\n";
  }
  LASTFLOP_RETURN_IF_ERROR(CheckHoldsBaseline(trials, devices.names.size(), fidelity));
  return devices.names;
}

// Of the workers that DevicesFor() gave, which are of one kind.
absl::string_view BackendOf(const std::vector<std::string>& devices) {
  return absl::StartsWith(devices.front(), "cpu:") ? "cpu" : "cuda";
}

// Unique for this call: a repeated Submit after a broken connection answers the same campaign.
std::string NewSubmissionId() {
  return absl::StrCat(getpid(), "-", std::chrono::system_clock::now().time_since_epoch().count());
}

void PrintWarnings(const std::vector<std::string>& warnings, Io& io) {
  for (const std::string& warning : warnings) {
    io.err << "warning: " << PlainLines(warning) << "\n";
  }
}

// Campaigns that an earlier process left unfinished in this database would run beside the new one
// and be measured together with it.
absl::Status PauseOthers(CoordinatorClient& client, const std::string& kept, const std::string& db,
                         Io& io) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<CampaignSummary> campaigns, client.List());
  for (const CampaignSummary& line : campaigns) {
    if (line.state == CampaignState::kRunning && line.campaign_id != kept) {
      LASTFLOP_RETURN_IF_ERROR(client.Cancel(line.campaign_id).status());
      io.err << "campaign " << line.campaign_id << " (" << OneLine(line.name)
             << ") was left unfinished in " << db << "; `lastflop resume " << line.campaign_id
             << " --db " << ShellQuoted(db) << "` goes on with it\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

int RunCommand(const RunFlags& flags, Io& io) {
  CatchInterrupts();
  absl::StatusOr<LoadedCampaign> loaded = LoadCampaign(flags.campaign);
  if (!loaded.ok()) {
    return ExitCodeFor(loaded.status(), io.err);
  }
  if (loaded->campaign.fidelity == Fidelity::kPredicted) {
    if (!flags.measuring.empty()) {
      io.err << "fidelity predicted measures and keeps nothing: "
             << absl::StrJoin(flags.measuring, ", ") << " would have no effect; leave "
             << (flags.measuring.size() == 1 ? "it" : "them") << " out\n";
      return kExitUsage;
    }
    return PreviewCommand(
        {.campaign = flags.campaign, .calibration = {}, .format = flags.format, .by = flags.by},
        io);
  }
  if (const absl::Status status = ParsePluginFlags(flags.plugins.files).status(); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  const absl::StatusOr<std::vector<std::string>> devices =
      DevicesFor(loaded->campaign, flags.workers, loaded->campaign.fidelity, io);
  if (!devices.ok()) {
    return ExitCodeFor(devices.status(), io.err);
  }
  if (const absl::Status status = CheckFidelity(loaded->campaign, BackendOf(*devices));
      !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  const absl::StatusOr<std::unique_ptr<LocalSystem>> system = LocalSystem::Start(
      {.db = flags.db, .devices = *devices, .plugins = flags.plugins, .verbose = flags.verbose});
  if (!system.ok()) {
    return ExitCodeFor(system.status(), io.err);
  }
  CoordinatorClient& client = (*system)->client();
  if (const absl::Status paused = PauseOthers(client, "", flags.db, io); !paused.ok()) {
    return ExitCodeFor(paused, io.err);
  }
  const absl::StatusOr<Submission> submitted =
      client.Submit(loaded->campaign, loaded->source_yaml, flags.campaign.file, NewSubmissionId());
  if (!submitted.ok()) {
    return ExitCodeFor(submitted.status(), io.err);
  }
  PrintWarnings(submitted->warnings, io);
  return FollowToReport(**system, submitted->campaign_id, flags.db, flags.format, flags.by,
                        /*shown_from_ms=*/0, io);
}

int SubmitCommand(const SubmitFlags& flags, Io& io) {
  const absl::StatusOr<LoadedCampaign> loaded = LoadCampaign(flags.campaign);
  if (!loaded.ok()) {
    return ExitCodeFor(loaded.status(), io.err);
  }
  absl::StatusOr<std::unique_ptr<CoordinatorClient>> client = CoordinatorClient::Open(flags.source);
  if (!client.ok()) {
    return ExitCodeFor(client.status(), io.err);
  }
  const absl::StatusOr<Submission> submitted =
      (*client)->Submit(loaded->campaign, loaded->source_yaml, flags.campaign.file,
                        flags.submission_id.empty() ? NewSubmissionId() : flags.submission_id);
  if (!submitted.ok()) {
    return ExitCodeFor(submitted.status(), io.err);
  }
  PrintWarnings(submitted->warnings, io);
  io.out << submitted->campaign_id << "\n" << std::flush;
  if (!flags.watch) {
    return kExitFinished;
  }
  CatchInterrupts();
  IdFlags watched;
  watched.source = flags.source;
  watched.id = submitted->campaign_id;
  return WatchCommand(watched, io);
}

int ResumeCommand(const IdFlags& flags, Io& io) {
  CatchInterrupts();
  const int64_t begun_at_ms = SystemClock().NowMs();
  if (!flags.source.server.empty()) {
    absl::StatusOr<std::unique_ptr<CoordinatorClient>> client =
        CoordinatorClient::Open(flags.source);
    const absl::StatusOr<int> pending =
        client.ok() ? (*client)->Resume(flags.id) : absl::StatusOr<int>(client.status());
    if (!pending.ok()) {
      return ExitCodeFor(pending.status(), io.err);
    }
    io.out << *pending << " trials pending again\n";
    return kExitFinished;
  }
  if (const absl::Status status = ParsePluginFlags(flags.plugins.files).status(); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  const absl::StatusOr<CampaignResults> results = ReadResults(flags.source, flags.id);
  if (!results.ok()) {
    return ExitCodeFor(results.status(), io.err);
  }
  std::optional<Fidelity> fidelity = results->campaign.fidelity;  // As it was begun.
  const absl::StatusOr<std::vector<std::string>> devices =
      DevicesFor(results->campaign, 0, fidelity, io);
  if (!devices.ok()) {
    return ExitCodeFor(devices.status(), io.err);
  }
  const absl::StatusOr<std::unique_ptr<LocalSystem>> system =
      LocalSystem::Start({.db = flags.source.db,
                          .devices = *devices,
                          .plugins = flags.plugins,
                          .verbose = flags.verbose});
  if (!system.ok()) {
    return ExitCodeFor(system.status(), io.err);
  }
  CoordinatorClient& client = (*system)->client();
  absl::Status status = PauseOthers(client, results->campaign_id, flags.source.db, io);
  if (status.ok()) {
    status = client.Resume(results->campaign_id).status();
  }
  if (!status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  return FollowToReport(**system, results->campaign_id, flags.source.db, flags.format, flags.by,
                        begun_at_ms, io);
}

}  // namespace lastflop
