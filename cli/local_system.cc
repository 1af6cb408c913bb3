#include "cli/local_system.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/campaign_exit.h"
#include "cli/interrupt.h"
#include "cli/print_report.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/share_path.h"
#include "common/shell_quote.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kStartTimeout{15000};
constexpr std::chrono::milliseconds kStartPoll{20};
constexpr size_t kLinesShown = 5;
constexpr std::chrono::milliseconds kHealthPoll{100};

// Sets stop() when the user interrupts or leaves (nobody reads the progress any more), or one of
// the programs ends by itself: without its workers a coordinator has nothing to tell that a watcher
// could wake up by.
class HealthWatch {
 public:
  explicit HealthWatch(LocalSystem& system) : system_(system), thread_([this] { Poll(); }) {}
  ~HealthWatch() { Finish().IgnoreError(); }
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  const std::atomic<bool>& stop() const { return stop_; }
  bool has_user_left() const { return has_user_left_; }

  // Ends the watch: why a program had ended, if one had.
  absl::Status Finish() {
    is_over_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    return health_;
  }

 private:
  void Poll() {
    while (!is_over_ && !InterruptFlag() && !has_user_left_ && health_.ok()) {
      std::this_thread::sleep_for(kHealthPoll);
      health_ = system_.Health();
      has_user_left_ = IsReaderGone(STDERR_FILENO);
    }
    stop_ = true;
  }

  LocalSystem& system_;  // Outlives this.
  std::atomic<bool> is_over_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> has_user_left_ = false;
  absl::Status health_;  // The thread's until it is joined.
  std::thread thread_;
};

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
                           options_.db, "--expected-workers", absl::StrCat(options_.devices.size()),
                           "--parent", absl::StrCat(getpid())},
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
    std::vector<std::string> arguments = {absl::StrCat(directory, "/lastflop-worker"),
                                          "--server",
                                          server(),
                                          "--device",
                                          options_.devices[i],
                                          "--id",
                                          name,
                                          "--parent",
                                          absl::StrCat(getpid()),
                                          "--plugin-timeout",
                                          absl::StrCat(options_.plugins.timeout_s)};
    for (const std::string& plugin : options_.plugins.files) {
      arguments.insert(arguments.end(), {"--plugin", plugin});
    }
    LASTFLOP_ASSIGN_OR_RETURN(std::unique_ptr<ChildProgram> worker,
                              ChildProgram::Start(arguments, LogFile(name)));
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

std::string LocalSystem::plugin_flags() const {
  std::string flags;
  for (const std::string& plugin : options_.plugins.files) {
    absl::StrAppend(&flags, " --plugin ", plugin);
  }
  return flags;
}

absl::Status LocalSystem::HealthOf(ChildProgram& program, const std::string& title,
                                   const std::string& log) const {
  if (program.IsRunning()) {
    return absl::OkStatus();
  }
  return ErrorOfExit(program.exit_code(),
                     absl::StrCat(title, " ", program.exit_text(), ":", LastLines(log)));
}

absl::Status LocalSystem::Health() {
  LASTFLOP_RETURN_IF_ERROR(HealthOf(*coordinator_, "the coordinator", "coordinator"));
  for (size_t i = 0; i < workers_.size(); ++i) {
    const std::string name = absl::StrCat("local-", i);
    LASTFLOP_RETURN_IF_ERROR(HealthOf(*workers_[i], absl::StrCat("worker ", name), name));
  }
  return absl::OkStatus();
}

int FollowToReport(LocalSystem& system, const std::string& id, const std::string& db,
                   const std::string& format, const std::string& by, int64_t shown_from_ms,
                   Io& io) {
  HealthWatch health_watch(system);
  absl::Status watched = absl::OkStatus();
  {
    ProgressPrinter progress(io.err, io.is_err_terminal, io.width);
    watched = system.client().Watch(id, 0, health_watch.stop(), [&](const Event& event) {
      if (event.at_ms >= shown_from_ms) {
        progress.Show(event);
      }
      return true;
    });
  }
  absl::Status health = health_watch.Finish();
  const std::string resume = absl::StrCat("; `lastflop resume ", id, " --db ", ShellQuoted(db),
                                          system.plugin_flags(), "` goes on with it\n");
  if (InterruptFlag() || health_watch.has_user_left()) {
    system.client().Cancel(id).IgnoreError();
    io.err << "interrupted" << resume;
    return kExitInterrupted;
  }
  absl::StatusOr<CampaignResults> results = absl::UnavailableError("the results were not read");
  if (health.ok() && watched.ok()) {
    results = system.client().Fetch(id);
  }
  if (!watched.ok() || !results.ok()) {
    health.Update(system.Health());  // A coordinator's end breaks the stream before it is seen.
  }
  for (const absl::Status& status : {health, watched, results.status()}) {
    if (!status.ok()) {
      const bool is_kept = std::filesystem::exists(db);
      io.err << "lastflop: " << PlainLines(status.message())
             << (is_kept ? absl::StrCat("\nunfinished, what is done is kept", resume)
                         : absl::StrCat("\nunfinished, and ", db, " is not there to go on with\n"));
      return kExitUnfinished;
    }
  }
  PrintReport(*results, format, by, io);
  io.err << "campaign " << id << " is kept in " << db << "; read it again with `lastflop report "
         << id << " --db " << ShellQuoted(db) << "`\n";
  const CampaignSummary summary = Summarize(*results);
  const int code = ExitCodeOf(summary);
  if (code == kExitUnfinished) {
    const bool has_lost = summary.state == CampaignState::kDone;
    io.err << "unfinished (" << (has_lost ? "lost_out" : ToWord(summary.state)) << ")" << resume;
  }
  return code;
}

}  // namespace lastflop
