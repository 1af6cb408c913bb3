// calibrate: lets lastflop-worker measure this host, and writes a machine file.

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/calibrated_machine.h"
#include "cli/collectives_bench.h"
#include "cli/commands.h"
#include "cli/local_devices.h"
#include "cli/output_file.h"
#include "cli/processes.h"
#include "cli/read_results.h"
#include "common/campaign_json.h"
#include "common/exit_codes.h"
#include "common/share_path.h"
#include "common/status_macros.h"
#include "spec/machine_reader.h"
#include "spec/machine_writer.h"

namespace lastflop {
namespace {

constexpr int64_t kSmallBytes = 2048;  // Latency alone.
constexpr int64_t kLargeBytesOnCpu = int64_t{1} << 20;
constexpr int64_t kLargeBytesOnGpus = int64_t{64} << 20;
constexpr int kMostRanks = 8;

bool IsGpu(absl::string_view device) { return absl::StartsWith(device, "cuda:"); }

absl::StatusOr<std::string> ChooseDevice(const std::string& asked,
                                         const std::vector<std::string>& on_host) {
  if (asked.empty()) {
    return on_host.front();
  }
  const bool is_there = std::find(on_host.begin(), on_host.end(), asked) != on_host.end();
  if (!is_there && asked != "cpu:0") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", asked, ": this host has ", on_host.front(),
                     on_host.size() > 1 ? absl::StrCat(" to ", on_host.back()) : "",
                     " for this build; cpu:0 is the CPU"));
  }
  return asked;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16] = {};
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return {text, length};
}

absl::StatusOr<Machine> MeasureMachine(const std::string& device) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text,
                            OutputOf({absl::StrCat(directory, "/lastflop-worker"), "--print",
                                      "calibration", "--device", device}));
  return MachineFromJson(text);
}

// How many ranks all-reduces are measured with; 1 for none.
absl::StatusOr<int> RanksOf(const CalibrateFlags& flags, const std::string& device,
                            const std::vector<std::string>& on_host) {
  const int most =
      IsGpu(device) ? std::min(static_cast<int>(on_host.size()), kMostRanks) : kMostRanks;
  if (flags.ranks > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks ", flags.ranks, ": at most ", most, " here"));
  }
  return flags.ranks > 0 ? flags.ranks : IsGpu(device) ? most : 2;
}

absl::Status MeasureAllReduces(const std::string& device, int ranks, const std::string& when,
                               CalibratedMachine& calibrated) {
  CollectivesBench bench;
  for (int rank = 0; rank < ranks; ++rank) {
    bench.devices.push_back(absl::StrCat(IsGpu(device) ? "cuda:" : "cpu:", rank));
  }
  bench.bytes = {kSmallBytes, IsGpu(device) ? kLargeBytesOnGpus : kLargeBytesOnCpu};
  // A GPU plan's own choices are priced apart from NCCL's (planner/cost/collective_cost.h).
  bench.algorithms = {IsGpu(device) ? "nccl" : "auto"};
  LASTFLOP_ASSIGN_OR_RETURN(const std::string rows, RunCollectivesBench(bench));
  return AddAllReduces(rows, when, calibrated);
}

// The machine file of ours that is about the same device; nothing where there is none.
void AddDeclaredPeaks(CalibratedMachine& calibrated) {
  const absl::StatusOr<std::string> folder = SharePath("experiments/machines");
  if (!folder.ok()) {
    return;
  }
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(*folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".yaml") {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const absl::StatusOr<Machine> declared = ReadMachineFile(file.string());
    if (declared.ok() && declared->backend == calibrated.machine.backend &&
        declared->device_name == calibrated.machine.device_name) {
      AddDeclared(*declared, absl::StrCat("machines/", file.filename().string()), calibrated);
    }
  }
}

absl::Status Calibrate(const CalibrateFlags& flags, Io& io) {
  LASTFLOP_ASSIGN_OR_RETURN(const HostDeviceList host, DevicesOnHost());
  if (flags.device.empty()) {
    WarnOfUnusedGpus(host.unused_gpus, io.err);
  }
  const std::vector<std::string>& on_host = host.names;
  LASTFLOP_ASSIGN_OR_RETURN(const std::string device, ChooseDevice(flags.device, on_host));
  LASTFLOP_ASSIGN_OR_RETURN(const int ranks, RanksOf(flags, device, on_host));
  if (!flags.out.empty() && !flags.force && !std::filesystem::is_directory(flags.out)) {
    LASTFLOP_RETURN_IF_ERROR(CheckNewOutputFile(flags.out, flags.name, "yaml"));
  }
  const std::string when = absl::StrCat("`lastflop calibrate --device ", device, "`, ", Today());
  io.err << "lastflop: measuring reads and products of " << device << "\n";
  LASTFLOP_ASSIGN_OR_RETURN(const Machine measured, MeasureMachine(device));
  CalibratedMachine calibrated = DescribeMeasured(measured, when);
  if (ranks > 1) {
    io.err << "lastflop: measuring all-reduces of " << ranks << " ranks\n";
    if (const absl::Status status = MeasureAllReduces(device, ranks, when, calibrated);
        !status.ok()) {
      io.err << "lastflop: all-reduces are left out: " << status.message() << "\n";
    }
    for (const std::string& figure : calibrated.left_out) {
      io.err << "lastflop: " << figure << "\n";
    }
  }
  AddDeclaredPeaks(calibrated);
  Machine& machine = calibrated.machine;
  machine.name = flags.name.empty() ? MachineFileName(machine) : flags.name;
  const std::string yaml = MachineYaml(machine, calibrated.origins);
  if (const absl::StatusOr<Machine> read = ReadMachine(yaml, machine.name); !read.ok()) {
    return absl::InternalError(
        absl::StrCat("what was measured is no machine: ", read.status().message()));
  }
  if (flags.out.empty()) {
    io.out << yaml << std::flush;
    return absl::OkStatus();
  }
  if (!flags.force) {
    LASTFLOP_RETURN_IF_ERROR(CheckNewOutputFile(flags.out, machine.name, "yaml"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::string path,
                            WriteOutputFile(flags.out, machine.name, "yaml", yaml));
  io.err << "lastflop: wrote " << path << "\n";
  return absl::OkStatus();
}

}  // namespace

int CalibrateCommand(const CalibrateFlags& flags, Io& io) {
  if (const absl::Status status = Calibrate(flags, io); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  return kExitFinished;
}

}  // namespace lastflop
