// collectives bench: a process of lastflop-worker a rank, which alone see collectives and devices.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/collectives_bench.h"
#include "cli/commands.h"
#include "cli/local_devices.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/exit_codes.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

absl::StatusOr<CollectivesBench> ResolveBench(const CollectivesFlags& flags, Io& io) {
  std::vector<std::string> gpus;
  if (flags.device != "cpu") {
    LASTFLOP_ASSIGN_OR_RETURN(HostDeviceList host, DevicesOnHost());
    WarnOfUnusedGpus(host.unused_gpus, io.err);
    gpus = std::move(host.names);
    std::erase_if(gpus, [](const std::string& name) { return !absl::StartsWith(name, "cuda:"); });
  }
  const bool is_cuda = flags.device == "cuda" || (flags.device.empty() && gpus.size() >= 2);
  const int most = static_cast<int>(std::min<size_t>(gpus.size(), 8));
  const int ranks = flags.ranks > 0 ? flags.ranks : is_cuda ? std::max(2, most) : 2;
  if (is_cuda && ranks > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks ", ranks, ": this host has ", gpus.size(),
                     " GPUs that this build can use, and at most 8 take part"));
  }
  CollectivesBench bench;
  for (int rank = 0; rank < ranks; ++rank) {
    bench.devices.push_back(is_cuda ? gpus[static_cast<size_t>(rank)] : absl::StrCat("cpu:", rank));
  }
  bench.bytes = flags.bytes;
  if (bench.bytes.empty()) {
    // 14 and 112 KiB are one and eight tokens of 7168.
    bench.bytes = {4, 2 * kKiB, 14 * kKiB, 64 * kKiB, 112 * kKiB, 256 * kKiB, 512 * kKiB, kMiB};
    if (is_cuda) {
      bench.bytes.insert(bench.bytes.end(), {2 * kMiB, 8 * kMiB, 16 * kMiB, 64 * kMiB});
    }
  }
  for (const int64_t bytes : bench.bytes) {
    if (bytes % 2 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bytes ", bytes, ": bf16 values have 2 bytes each"));
    }
  }
  bench.algorithms = flags.algorithms;
  if (bench.algorithms.empty()) {
    bench.algorithms = {"auto", "one_shot", "two_shot", is_cuda ? "nccl" : "ring", "p2p"};
  }
  bench.operations = flags.operations;
  if (bench.operations.empty()) {
    bench.operations = {"all_reduce", "all_reduce_norm", "all_to_all"};
  }
  return bench;
}

std::string CellOf(const nlohmann::json& value) {
  if (value.is_null()) {
    return "";
  }
  if (value.is_number_float()) {
    return absl::StrCat(value.get<double>());
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Rows BenchRows(const nlohmann::json& list) {
  Rows rows;
  rows.names = {"operation", "algorithm", "asked", "ranks",   "bytes", "us",
                "wait_us",   "chain",     "noise", "correct", "calls", "samples"};
  for (const std::string& name : rows.names) {
    rows.is_number.push_back(name != "operation" && name != "algorithm" && name != "asked" &&
                             name != "chain" && name != "correct");
  }
  for (const nlohmann::json& entry : list) {
    std::vector<std::string> cells;
    for (const std::string& name : rows.names) {
      cells.push_back(CellOf(entry.at(name)));
    }
    rows.cells.push_back(std::move(cells));
  }
  return rows;
}

}  // namespace

int CollectivesCommand(const CollectivesFlags& flags, Io& io) {
  const absl::StatusOr<CollectivesBench> bench = ResolveBench(flags, io);
  if (!bench.ok()) {
    return ExitCodeFor(bench.status(), io.err);
  }
  const absl::StatusOr<std::string> text = RunCollectivesBench(*bench);
  if (!text.ok()) {
    return ExitCodeFor(text.status(), io.err);
  }
  const nlohmann::json document = nlohmann::json::parse(*text);
  if (flags.format == "json") {
    io.out << document.dump(2) << "\n";
  } else {
    WriteRows(BenchRows(document.at("rows")), flags.format, io.out);
  }
  return kExitFinished;
}

}  // namespace lastflop
