#include "cli/local_system.h"

#include <unistd.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/campaign_exit.h"
#include "cli/interrupt.h"
#include "cli/print_report.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/share_path.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kStartTimeout{15000};
constexpr std::chrono::milliseconds kStartPoll{20};
constexpr size_t kLinesShown = 5;

}  // namespace

std::string LocalSystem::LogFile(const std::string& name) const {
  return options_.verbose ? "" : absl::StrCat(folder_.path(), "/", name, ".log");
}

std::string LocalSystem::LastLines(const std::string& name) const {
  std::ifstream in(absl::StrCat(folder_.path(), "/", name, ".log"));
  std::deque<std::string> lines;
  std::string line;
  while (std::getline(in, line)) {
    lines.push_back(line);
    if (lines.size() > kLinesShown) {
      lines.pop_front();
    }
  }
  std::string text;
  for (const std::string& kept : lines) {
    absl::StrAppend(&text, "\n  ", kept);
  }
  return text;
}

absl::Status LocalSystem::StartCoordinator(const std::string& directory) {
  LASTFLOP_ASSIGN_OR_RETURN(
      coordinator_,
      ChildProgram::Start({absl::StrCat(directory, "/lastflopd"), "--listen", server(), "--db",
                           options_.db, "--parent", absl::StrCat(getpid())},
                          LogFile("coordinator")));
  SourceFlags flags;
  flags.server = server();
  LASTFLOP_ASSIGN_OR_RETURN(client_, CoordinatorClient::Open(flags));
  const auto end = std::chrono::steady_clock::now() + kStartTimeout;
  while (!client_->WaitUntilUp(kStartPoll).ok()) {
    LASTFLOP_RETURN_IF_ERROR(Health());
    if (std::chrono::steady_clock::now() > end) {
      return absl::DeadlineExceededError(
          absl::StrCat("the coordinator does not answer:", LastLines("coordinator")));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalSystem::StartWorkers(const std::string& directory) {
  for (size_t i = 0; i < options_.devices.size(); ++i) {
    const std::string name = absl::StrCat("local-", i);
    LASTFLOP_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProgram> worker,
        ChildProgram::Start(
            {absl::StrCat(directory, "/lastflop-worker"), "--server", server(), "--device",
             options_.devices[i], "--id", name, "--parent", absl::StrCat(getpid())},
            LogFile(name)));
    workers_.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LocalSystem>> LocalSystem::Start(const Options& options) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Create());
  auto system = std::unique_ptr<LocalSystem>(new LocalSystem(std::move(folder), options));
  LASTFLOP_RETURN_IF_ERROR(system->StartCoordinator(directory));
  LASTFLOP_RETURN_IF_ERROR(system->StartWorkers(directory));
  return system;
}

absl::Status LocalSystem::Health() {
  if (!coordinator_->IsRunning()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the coordinator ", coordinator_->exit_text(), ":", LastLines("coordinator")));
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->IsRunning()) {
      return absl::FailedPreconditionError(absl::StrCat("worker local-", i, " ",
                                                        workers_[i]->exit_text(), ":",
                                                        LastLines(absl::StrCat("local-", i))));
    }
  }
  return absl::OkStatus();
}

int FollowToReport(LocalSystem& system, const std::string& id, const std::string& db,
                   const std::string& format, const std::string& by, Io& io) {
  absl::Status health = absl::OkStatus();
  absl::Status watched = absl::OkStatus();
  {
    ProgressPrinter progress(io.err, io.is_err_terminal, io.width);
    watched = system.client().Watch(id, 0, InterruptFlag(), [&](const Event& event) {
      progress.Show(event);
      health = system.Health();
      return health.ok();
    });
  }
  if (InterruptFlag()) {
    system.client().Cancel(id).IgnoreError();
    io.err << "interrupted; `lastflop resume " << id << " --db " << db << "` goes on with it\n";
    return kExitInterrupted;
  }
  for (const absl::Status& status : {health, watched}) {
    if (!status.ok()) {
      io.err << "lastflop: " << status.message() << "\n";
      return kExitInternal;
    }
  }
  const absl::StatusOr<CampaignResults> results = system.client().Fetch(id);
  if (!results.ok()) {
    io.err << "lastflop: " << results.status().message() << "\n";
    return kExitInternal;
  }
  PrintReport(*results, format, by, io);
  io.err << "campaign " << id << " is kept in " << db << "; read it again with `lastflop report "
         << id << " --db " << db << "`\n";
  const CampaignSummary summary = Summarize(*results);
  const int code = ExitCodeOf(summary);
  if (code == kExitUnfinished) {
    const bool has_lost = summary.state == CampaignState::kDone;
    io.err << "unfinished (" << (has_lost ? "lost_out" : ToWord(summary.state))
           << "); `lastflop resume " << id << " --db " << db << "` goes on with it\n";
  }
  return code;
}

}  // namespace lastflop
