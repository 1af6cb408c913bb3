#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/processes.h"
#include "cli/temporary_folder.h"

namespace lastflop {

// A coordinator on a private Unix socket and workers for it, as children of this process: the same
// programs that a daemon set-up has. Ended, with the folder of the socket, when it is destroyed.
class LocalSystem {
 public:
  struct Options {
    std::string db;
    std::vector<std::string> devices;  // One worker each: "cpu:0", "cuda:1".
    PluginFlags plugins;               // Every worker offers them.
    bool verbose = false;              // Logs go to stderr; else to a file beside the socket.
  };

  // An error as its exit code says (common/exit_codes.h) when the coordinator ends at once (another
  // one has the database open, a folder that cannot be written); the message has its last log
  // lines.
  static absl::StatusOr<std::unique_ptr<LocalSystem>> Start(const Options& options);

  CoordinatorClient& client() { return *client_; }

  // The flags that give another system the same plugins: " --plugin fast=fast.so", or "".
  std::string plugin_flags() const;

  // Not OK once one of the programs has ended by itself: with its name and last log lines.
  absl::Status Health();

 private:
  LocalSystem(TemporaryFolder folder, Options options)
      : folder_(std::move(folder)), options_(std::move(options)) {}

  absl::Status StartCoordinator(const std::string& directory);
  absl::Status StartWorkers(const std::string& directory);
  absl::Status HealthOf(ChildProgram& program, const std::string& title,
                        const std::string& log) const;
  std::string server() const { return "unix:" + folder_.path() + "/s"; }
  std::string LogFile(const std::string& name) const;
  std::string LastLines(const std::string& name) const;

  TemporaryFolder folder_;
  const Options options_;
  std::unique_ptr<CoordinatorClient> client_;
  std::unique_ptr<ChildProgram> coordinator_;
  std::vector<std::unique_ptr<ChildProgram>> workers_;  // Ended before the coordinator.
};

// Watches campaign `id` of `system` to its end, with progress on stderr, prints the ranked report
// and gives the exit code. Events before `shown_from_ms` are another process' history and not
// shown. Ctrl-C, a hangup or the end of who reads the progress cancel the campaign (resumable):
// 130.
int FollowToReport(LocalSystem& system, const std::string& id, const std::string& db,
                   const std::string& format, const std::string& by, int64_t shown_from_ms, Io& io);

}  // namespace lastflop
