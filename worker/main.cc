// lastflop-worker: runs trials on one device for a coordinator. With --child it is the process
// that a worker spawns to run kernels; with --print it says what this host has.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/strip.h"
#include "common/exit_codes.h"
#include "common/log.h"
#include "common/one_line.h"
#include "common/parent_process.h"
#include "common/plugin_files.h"
#include "worker/child_service.h"
#include "worker/collective_bench.h"
#include "worker/host_devices.h"
#include "worker/print.h"
#include "worker/run_kernel_bench.h"
#include "worker/worker_client.h"

namespace lastflop {
namespace {

std::atomic<bool> stop_requested{false};

void RequestStop(int /*signal*/) { stop_requested = true; }

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return absl::InvalidArgumentError("--token-file: cannot read " + file);
  }
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

int ServeCoordinator(WorkerOptions& options, const std::string& token_file) {
  if (!token_file.empty()) {
    absl::StatusOr<std::string> token = ReadToken(token_file);
    if (!token.ok()) {
      std::cerr << token.status().message() << "\n";
      return kExitUsage;
    }
    options.token = *std::move(token);
  }
  struct sigaction action {};
  action.sa_handler = RequestStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const absl::Status status = RunWorker(options, stop_requested);
  if (status.ok()) {
    return kExitFinished;
  }
  Log(LogSeverity::kError, "worker_ended", {{"reason", std::string(status.message())}});
  return ExitCodeOf(status);
}

int Main(int argc, char** argv) {
  CLI::App app{"Runs lastflop trials on one device for a coordinator."};
  WorkerOptions options;
  std::string token_file;
  std::string print;
  std::string bench_file;
  int child_of = 0;
  int parent_pid = 0;
  CollectiveBenchOptions bench;
  std::vector<std::string> algorithms;
  std::vector<std::string> plugin_flags;
  double plugin_timeout_s = 60;
  app.add_option("--server", options.channel.server,
                 "Coordinator: HOST:PORT or unix:PATH (loopback unless --tls-ca is given)");
  app.add_option("--device", options.device, "cpu:0, cpu:1, ... or cuda:0, cuda:1, ...");
  app.add_option("--id", options.id, "Name of this worker; default: the coordinator chooses");
  app.add_option("--tls-ca", options.channel.tls_ca_file,
                 "PEM file of the authority behind the coordinator's certificate");
  app.add_option("--tls-server-name", options.channel.tls_server_name,
                 "Name in the coordinator's certificate, when it is not the host");
  app.add_option("--token-file", token_file, "File with the coordinator's token");
  app.add_flag("--allow-commands", options.allows_commands,
               "Let campaigns run engine commands on this host");
  app.add_option(
         "--plugin", plugin_flags,
         "NAME=FILE: let campaigns run this shared library or .py as moe.kernel plugin:NAME "
         "(docs/plugins.md); repeatable")
      ->allow_extra_args(false);
  app.add_option("--plugin-timeout", plugin_timeout_s,
                 "Seconds after which a call into a plugin is given up; default 60")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--parent", parent_pid, "End when this process, the parent, ends");
  app.add_option(
      "--print", print,
      "Say what this host has and exit: devices, machine or calibration (of --device; the latter "
      "waits for who measures there), kernels or doctor");
  app.add_option("--bench", bench_file,
                 "Time the expert kernels as a file says (`lastflop kernels bench`) and exit");
  app.add_option(
      "--bench-collectives", bench.rendezvous,
      "Run one rank of `lastflop collectives bench`, which meets the others at this path");
  app.add_option("--rank", bench.rank)->group("");
  app.add_option("--ranks", bench.num_ranks)->group("");
  app.add_option("--bytes", bench.bytes)->delimiter(',')->group("");
  app.add_option("--algorithms", algorithms)->delimiter(',')->group("");
  app.add_option("--operations", bench.operations)->delimiter(',')->group("");
  app.add_option(std::string(kChildFlag), child_of)->group("");  // Hidden: for workers themselves.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitFinished : kExitUsage;
  }
  if (child_of != 0) {
    return RunChild(child_of);
  }
  if (!bench.rendezvous.empty()) {
    if (parent_pid != 0 && !DieWithParent(parent_pid, SIGTERM)) {
      return kExitUnreachable;
    }
    for (const std::string& algorithm : algorithms) {
      const auto reduce = FromWord<AllReduceAlgorithm>(algorithm);
      const auto exchange = FromWord<AllToAllAlgorithm>(algorithm);  // nccl is both.
      if (!reduce.has_value() && !exchange.has_value()) {
        std::cerr << "lastflop-worker: --algorithms " << algorithm << ": no such algorithm\n";
        return kExitUsage;
      }
      if (reduce.has_value()) {
        bench.algorithms.push_back(*reduce);
      }
      if (exchange.has_value()) {
        bench.exchanges.push_back(*exchange);
      }
    }
    bench.device = options.device;
    return RunCollectiveBench(bench);
  }
  if (!print.empty()) {
    return PrintAboutHost(print, options.device);
  }
  if (!bench_file.empty()) {
    return PrintKernelBench(bench_file);
  }
  if (options.channel.server.empty()) {
    std::cerr << "lastflop-worker: --server ADDR and --device cpu:N or cuda:N are needed\n";
    return kExitUsage;
  }
  if (const absl::Status status = CheckDevice(options.device); !status.ok()) {
    std::cerr << "lastflop-worker: --device: " << OneLine(status.message()) << "\n";
    return kExitUsage;
  }
  absl::StatusOr<PluginFiles> plugins = ParsePluginFlags(plugin_flags);
  if (!plugins.ok()) {
    std::cerr << "lastflop-worker: " << plugins.status().message() << "\n";
    return kExitUsage;
  }
  options.plugins.files = *std::move(plugins);
  options.plugins.call_limit =
      std::chrono::milliseconds(static_cast<int64_t>(plugin_timeout_s * 1000));
  if (parent_pid != 0 && !DieWithParent(parent_pid, SIGTERM)) {
    return kExitUnreachable;
  }
  return ServeCoordinator(options, token_file);
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::Main(argc, argv); }
