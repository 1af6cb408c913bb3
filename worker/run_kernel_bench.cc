#include "worker/run_kernel_bench.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/exit_codes.h"
#include "common/status_macros.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "worker/cpu_host.h"
#include "worker/device_probe.h"
#include "worker/gpu_presence.h"
#include "worker/host_devices.h"
#include "worker/kernel_bench.h"
#include "worker/measuring_hold.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kLockTimeout{60'000};

// Layers that take turns: what one reads is long out of every cache when its turn comes again.
constexpr int64_t kMostLayers = 8;

bool IsCuda(const std::string& device) { return absl::StartsWith(device, "cuda:"); }

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const KernelBenchRequest& request,
                                                     const Machine& machine) {
  BackendOptions options;
  options.model = request.model;
  options.machine = machine;
  options.layers_kept = std::min(kMostLayers, request.model.num_moe_layers());
  options.data_seed = request.routing.seed;
  options.experts_only = true;
  options.most_loaded = request.most_loaded;
  if (!IsCuda(request.device)) {
    // A GPU's backend keeps as many layers as fit by itself.
    Point largest;
    largest.batch = *std::max_element(request.batches.begin(), request.batches.end());
    largest.context = 1;
    const double bytes = kUsableMemoryShare * static_cast<double>(AvailableMemoryBytes());
    while (options.layers_kept > 1 &&
           !CheckMemory(request.model, PlanOf(request), largest, options.layers_kept, bytes).ok()) {
      options.layers_kept /= 2;
    }
    return CreateCpuBackend(options);
  }
  if (!absl::SimpleAtoi(absl::StripPrefix(request.device, "cuda:"), &options.device_index)) {
    return absl::InvalidArgumentError(absl::StrCat("device ", request.device));
  }
  return CreateCudaBackend(options);
}

}  // namespace

absl::StatusOr<KernelBenchResult> RunKernelBench(KernelBenchRequest request) {
  const Plan plan = PlanOf(request);
  // Beside its routed experts nothing of the model runs here, whatever it is stored in.
  Model& model = request.model;
  model.attention_weights = model.shared = model.dense = model.lm_head = WeightStorage{};
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(request.model, plan));
  if (request.samples < 1 || request.batches.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("samples=", request.samples, " at ",
                                                   request.batches.size(),
                                                   " batches: at least one of each"));
  }
  if (request.device.empty()) {
    request.device = HostDevices().front();
    if (const std::optional<UnusedGpus> unused = FindUnusedGpus(); unused.has_value()) {
      std::cerr << "WARNING: " << unused->Text() << "\n";
    }
  }
  LASTFLOP_RETURN_IF_ERROR(CheckDevice(request.device));
  LASTFLOP_ASSIGN_OR_RETURN(const MeasuringHold hold,
                            HoldToMeasure({.device = request.device, .timeout = kLockTimeout}));
  LASTFLOP_ASSIGN_OR_RETURN(const Machine machine, MachineOfDevice(request.device));
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(request, machine));
  KernelBenchResult result{
      .model = request.model.name,
      .tensor = request.tensor,
      .expert = request.expert,
      .rank = request.most_loaded ? "max" : "mean",
      .weights = std::string(ToWord(ExpertStorage(request.model, plan).format)),
      .routing = request.routing,
      .environment = {},
      .cold_read = machine.cold_read,
      .peak_bf16_tflop_per_s = machine.measured_bf16_tflop_per_s,
      .rows = {}};
  LASTFLOP_ASSIGN_OR_RETURN(result.rows, BenchKernels(request, machine, *backend));
  std::map<std::string, std::string> environment = backend->Environment();
  for (const KernelBenchRow& row : result.rows) {
    for (const auto& [key, value] : row.environment) {
      environment.erase(key);
    }
  }
  result.environment.assign(environment.begin(), environment.end());
  return result;
}

int PrintKernelBench(const std::string& request_file) {
  std::ifstream in(request_file);
  std::ostringstream text;
  text << in.rdbuf();
  absl::StatusOr<KernelBenchRequest> request = KernelBenchRequestFromJson(text.str());
  const absl::StatusOr<KernelBenchResult> result =
      request.ok() ? RunKernelBench(*std::move(request)) : request.status();
  if (!result.ok()) {
    std::cerr << "lastflop-worker: " << result.status().message() << "\n";
    return ExitCodeOf(result.status());
  }
  std::cout << ToJson(*result) << "\n";
  return kExitFinished;
}

}  // namespace lastflop
