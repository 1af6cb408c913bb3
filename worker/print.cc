#include "worker/print.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/campaign_json.h"
#include "common/exit_codes.h"
#include "common/host.h"
#include "common/machine.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kernel_table.h"
#include "worker/cpu_host.h"
#include "worker/doctor.h"
#include "worker/host.h"
#include "worker/read_curve.h"

namespace lastflop {
namespace {

using Json = nlohmann::ordered_json;

int PrintMachine() {
  Machine machine = DetectCpuMachine();
  const absl::StatusOr<std::unique_ptr<ThreadPool>> pool =
      ThreadPool::Create({.cores = AllowedCores()});
  if (!pool.ok()) {
    std::cerr << "lastflop-worker: " << pool.status().message() << "\n";
    return kExitInternal;
  }
  absl::StatusOr<std::vector<ReadCurvePoint>> curve = MeasureReadCurve(**pool, machine.l2_bytes);
  if (!curve.ok()) {
    std::cerr << "lastflop-worker: " << curve.status().message() << "\n";
    return kExitInternal;
  }
  machine.cold_read = *std::move(curve);
  std::cout << ToJson(machine) << "\n";
  return kExitFinished;
}

int PrintKernels() {
  Json rows = Json::array();
  for (const KernelInfo& kernel : KernelTable()) {
    rows.push_back({{"name", std::string(kernel.name)},
                    {"backends", std::string(kernel.backends)},
                    {"ops", std::string(kernel.ops)},
                    {"formats", std::string(kernel.formats)},
                    {"config", std::string(kernel.config_keys)},
                    {"summary", std::string(kernel.summary)}});
  }
  std::cout << Json{{"kernels", rows}}.dump(2) << "\n";
  return kExitFinished;
}

int PrintDoctor() {
  Json rows = Json::array();
  for (const Finding& finding : ExamineHost()) {
    rows.push_back({{"severity", finding.severity},
                    {"subject", finding.subject},
                    {"found", finding.found},
                    {"spoils", finding.spoils}});
  }
  std::cout << Json{{"host", HostName()}, {"findings", rows}}.dump(2) << "\n";
  return kExitFinished;
}

}  // namespace

int PrintAboutHost(const std::string& what) {
  if (what == "machine") {
    return PrintMachine();
  }
  if (what == "kernels") {
    return PrintKernels();
  }
  if (what == "doctor") {
    return PrintDoctor();
  }
  std::cerr << "lastflop-worker: --print " << what << ": machine, kernels or doctor\n";
  return kExitUsage;
}

}  // namespace lastflop
