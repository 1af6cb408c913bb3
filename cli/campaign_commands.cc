// watch, cancel, report and export: one campaign that exists.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cli/campaign_exit.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/print_report.h"
#include "cli/progress.h"
#include "cli/read_results.h"
#include "common/exit_codes.h"
#include "planner/rank.h"
#include "report/render.h"

namespace lastflop {
namespace {

constexpr std::chrono::seconds kReturnTime{10};
constexpr std::chrono::milliseconds kReturnPoll{100};

// To stdout, or to `out` and then where it went.
int Put(const std::string& text, const CampaignResults& results, const std::string& extension,
        const std::string& out, Io& io) {
  if (out.empty()) {
    io.out << text << std::flush;
    return kExitFinished;
  }
  const absl::StatusOr<std::string> path =
      WriteOutputFile(out, results.campaign.name, extension, text, results.campaign_id);
  if (!path.ok()) {
    return ExitCodeFor(path.status(), io.err);
  }
  io.err << *path << "\n";
  return kExitFinished;
}

// A coordinator that was watched and has gone: whether it answers again soon, as one that is
// restarted does.
bool ComesBack(CoordinatorClient& client, Io& io) {
  io.err << "the coordinator is gone; waiting " << kReturnTime.count() << " s for its return\n"
         << std::flush;
  const auto end = std::chrono::steady_clock::now() + kReturnTime;
  while (!InterruptFlag() && std::chrono::steady_clock::now() < end) {
    if (client.WaitUntilUp(kReturnPoll).ok()) {
      return true;
    }
  }
  return false;
}

}  // namespace

int WatchCommand(const IdFlags& flags, Io& io) {
  absl::StatusOr<std::unique_ptr<CoordinatorClient>> client = CoordinatorClient::Open(flags.source);
  if (!client.ok()) {
    return ExitCodeFor(client.status(), io.err);
  }
  std::optional<CampaignSummary> summary;
  int64_t seen = flags.after_sequence;
  absl::Status status;
  do {
    ProgressPrinter progress(io.err, io.is_err_terminal, io.width);
    status = (*client)->Watch(flags.id, seen, InterruptFlag(), [&](const Event& event) {
      progress.Show(event);
      summary = event.summary;
      seen = event.sequence;
      return true;
    });
  } while (absl::IsUnavailable(status) && summary.has_value() && ComesBack(**client, io));
  if (!status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  if (InterruptFlag()) {
    return kExitInterrupted;
  }
  if (!summary.has_value()) {
    // Nothing has happened after --after: the campaign had ended.
    const absl::StatusOr<CampaignResults> results = (*client)->Fetch(flags.id);
    if (!results.ok()) {
      return ExitCodeFor(results.status(), io.err);
    }
    summary = Summarize(*results);
  }
  io.err << "campaign " << flags.id << ": " << ToWord(summary->state) << "\n";
  return ExitCodeOf(*summary);
}

int CancelCommand(const IdFlags& flags, Io& io) {
  absl::StatusOr<std::unique_ptr<CoordinatorClient>> client = CoordinatorClient::Open(flags.source);
  const absl::StatusOr<int> cancelled =
      client.ok() ? (*client)->Cancel(flags.id) : absl::StatusOr<int>(client.status());
  if (!cancelled.ok()) {
    return ExitCodeFor(cancelled.status(), io.err);
  }
  io.out << *cancelled << " trials cancelled\n";
  return kExitFinished;
}

int ReportCommand(const IdFlags& flags, Io& io) {
  const absl::StatusOr<CampaignResults> results = ReadResults(flags.source, flags.id);
  if (!results.ok()) {
    return ExitCodeFor(results.status(), io.err);
  }
  NoteIfAbandoned(flags.source, results->campaign_id, results->state, io.err);
  const Ranking ranking = RankingBy(*results, flags.by);
  const std::string text = RankingText(ranking, flags.format, !flags.out.empty(), io);
  return Put(text, *results, flags.format == "table" ? "txt" : flags.format, flags.out, io);
}

int ExportCommand(const IdFlags& flags, Io& io) {
  const absl::StatusOr<CampaignResults> results = ReadResults(flags.source, flags.id);
  if (!results.ok()) {
    return ExitCodeFor(results.status(), io.err);
  }
  NoteIfAbandoned(flags.source, results->campaign_id, results->state, io.err);
  return Put(ExportJson(MakeRanking(*results), *results), *results, "export.json", flags.out, io);
}

}  // namespace lastflop
