// lastflopd: the daemon that campaigns are submitted to and that workers connect to.

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/host.h"
#include "common/log.h"
#include "common/parent_process.h"
#include "coordinator/coordinator.h"
#include "coordinator/server.h"

namespace lastflop {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void RememberSignal(int signal) { stop_signal = signal; }

struct Flags {
  std::string database;
  ServerOptions server;
  std::string token_file;
  std::string port_file;
  int64_t heartbeat_ms = 1000;
  int64_t timeout_ms = 15000;
  int64_t attempt_deadline_s = 900;
  int64_t gang_grace_ms = 30000;
  int expected_workers = 0;
  bool shut_down_workers = false;
  int parent_pid = 0;
};

int Fail(const absl::Status& status) {
  Log(LogSeverity::kError, "cannot_serve", {{"reason", std::string(status.message())}});
  return ExitCodeOf(status);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  if (!std::getline(file, token) || absl::StripAsciiWhitespace(token).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--token-file ", path, ": no token in it"));
  }
  return std::string(absl::StripAsciiWhitespace(token));
}

// The whole file or none of it: who waits for it reads it as soon as it is there.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  file << address << "\n";
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--port-file ", path, ": cannot be written"));
  }
  return absl::OkStatus();
}

CoordinatorOptions OptionsOf(const Flags& flags) {
  CoordinatorOptions options;
  options.heartbeat = std::chrono::milliseconds(flags.heartbeat_ms);
  options.timeout = std::chrono::milliseconds(flags.timeout_ms);
  options.attempt_deadline = std::chrono::seconds(flags.attempt_deadline_s);
  options.gang_grace = std::chrono::milliseconds(flags.gang_grace_ms);
  options.expected_workers = flags.expected_workers;
  options.host_id = HostId();
  options.is_process_alive = IsProcessAlive;
  options.seed = std::random_device()();
  return options;
}

// Until a signal or an error of the database.
int Serve(const Flags& flags, Coordinator& coordinator, Server& server) {
  using std::chrono::milliseconds;
  while (stop_signal == 0 && !coordinator.WaitUntilStopped(milliseconds(50))) {
  }
  if (flags.shut_down_workers && coordinator.status().ok()) {
    coordinator.ShutDownWorkers("the coordinator shuts down");
    coordinator.WaitUntilStopped(milliseconds(300));  // They are told before the streams break.
  }
  coordinator.Stop();
  server.Shutdown();
  coordinator.WaitUntilStopped(std::chrono::minutes(1));
  if (!coordinator.status().ok()) {
    return ExitCodeOf(coordinator.status());
  }
  Log(LogSeverity::kInfo, "stopped", {{"signal", absl::StrCat(stop_signal)}});
  return kExitFinished;
}

int Run(Flags& flags) {
  if (flags.timeout_ms < 2 * flags.heartbeat_ms) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--timeout-ms ", flags.timeout_ms,
                                                        ": at least twice --heartbeat-ms (",
                                                        flags.heartbeat_ms, ")")));
  }
  if (!flags.token_file.empty()) {
    absl::StatusOr<std::string> token = ReadToken(flags.token_file);
    if (!token.ok()) {
      return Fail(token.status());
    }
    flags.server.token = *std::move(token);
  }
  // Before the database, which would be made and stay.
  if (const absl::Status status = Server::Check(flags.server); !status.ok()) {
    return Fail(status);
  }
  const SystemClock clock;
  absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Create(flags.database, clock, OptionsOf(flags));
  if (!coordinator.ok()) {
    return Fail(coordinator.status());
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(flags.server, **coordinator);
  if (!server.ok()) {
    return Fail(server.status());
  }
  if (!flags.port_file.empty()) {
    if (const absl::Status status = WritePortFile(flags.port_file, (*server)->address());
        !status.ok()) {
      return Fail(status);
    }
  }
  // Last: who reads it in the log finds the file.
  Log(LogSeverity::kInfo, "listening",
      {{"address", (*server)->address()}, {"database", flags.database}});
  return Serve(flags, **coordinator, **server);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"lastflopd: schedules campaigns on workers and keeps their results."};
  app.add_option("--listen", flags.server.listen, "HOST:PORT (0: any free port) or unix:PATH")
      ->required();
  app.add_option("--db", flags.database, "SQLite file; made when it is not there")->required();
  app.add_option("--heartbeat-ms", flags.heartbeat_ms, "workers send one this often, ms")
      ->check(CLI::Range(10, 60000))
      ->capture_default_str();
  app.add_option("--timeout-ms", flags.timeout_ms, "a worker silent for longer is lost, ms")
      ->check(CLI::Range(20, 3600000))
      ->capture_default_str();
  app.add_option("--attempt-deadline-s", flags.attempt_deadline_s,
                 "what an attempt may take at most beside its timed sampling, s")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--gang-grace-ms", flags.gang_grace_ms,
                 "how long a trial waits for workers that are not there, ms")
      ->check(CLI::Range(0, 3600000))
      ->capture_default_str();
  app.add_option(
         "--expected-workers", flags.expected_workers,
         "how many workers will ever connect (0: nobody knows); once they are there a trial "
         "that they cannot run waits for no more")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--tls-cert", flags.server.tls_cert_file, "PEM certificate chain");
  app.add_option("--tls-key", flags.server.tls_key_file, "PEM private key");
  app.add_option("--token-file", flags.token_file,
                 "its first line is what workers and commands must show");
  app.add_option("--port-file", flags.port_file, "the address is written here once it listens");
  app.add_option("--parent", flags.parent_pid, "end when this process, the parent, ends");
  app.add_flag("--shutdown-workers", flags.shut_down_workers, "tell workers to end when this ends");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitFinished : kExitUsage;
  }
  struct sigaction action {};
  action.sa_handler = RememberSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (flags.parent_pid != 0 && !DieWithParent(flags.parent_pid, SIGTERM)) {
    return kExitUnreachable;
  }
  return Run(flags);
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::Main(argc, argv); }
