#include "planner/cost/systems.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/suggest.h"

namespace lastflop {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Measured on Hopper by others and us: products without wgmma reach about 0.62 of the data sheet.
constexpr double kHopperMmaSync = 0.62;

// Bandwidth, peaks and memory are the vendor's data sheets (dense, SXM or Server Edition as named);
// SMs and L2 the architecture whitepapers', but for the H200's 60 MiB, which its driver reports.
// Where a sheet states only FP4 with sparsity, dense is half of it, FP8 half of that, BF16 half
// again. fp32 is the sheet's non-tensor figure. The share of mma.sync on Blackwell is assumed.
constexpr SystemSpec kSystems[] = {
    {"h200_sxm", "sm_90", 132, 4800, 60 * kMiB, 67, 989, 1979, 0, kHopperMmaSync, 450, true,
     "NVIDIA H200"},
    {"h100_sxm", "sm_90", 132, 3350, 50 * kMiB, 67, 989, 1979, 0, kHopperMmaSync, 450, true,
     "NVIDIA H100 80GB HBM3"},
    {"b200_sxm", "sm_100", 148, 8000, 126 * kMiB, 80, 2250, 4500, 9000, kHopperMmaSync / 2, 900,
     true, "NVIDIA B200"},
    {"h20_sxm", "sm_90", 78, 4000, 60 * kMiB, 44, 148, 296, 0, kHopperMmaSync, 450, true,
     "NVIDIA H20"},
    {"gb200", "sm_100", 148, 8000, 126 * kMiB, 80, 2500, 5000, 10000, kHopperMmaSync / 2, 900, true,
     "NVIDIA GB200"},
    {"a100_sxm", "sm_80", 108, 2039, 40 * kMiB, 19.5, 312, 0, 0, 1, 300, true, "NVIDIA A100-SXM4"},
    {"l40s", "sm_89", 142, 864, 96 * kMiB, 91.6, 362, 733, 0, 1, 32, false, "NVIDIA L40S"},
    {"rtx_pro_6000_server", "sm_120", 188, 1597, 128 * kMiB, 120, 462, 925, 1850, 1, 64, false,
     "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
    {"rtx_4090", "sm_89", 128, 1008, 72 * kMiB, 82.6, 165.2, 660, 0, 1, 32, false,
     "NVIDIA GeForce RTX 4090"},
    {"rtx_5090", "sm_120", 170, 1792, 96 * kMiB, 104.8, 209.5, 838, 1676, 1, 64, false,
     "NVIDIA GeForce RTX 5090"},
};

void Fill(std::optional<double>& value, double from, absl::string_view name,
          std::vector<absl::string_view>& filled) {
  if (!value.has_value() && from > 0) {
    value = from;
    filled.push_back(name);
  }
}

}  // namespace

const SystemSpec* SystemOfMachine(const Machine& machine) {
  for (const SystemSpec& system : kSystems) {
    // An A100's name ends with its memory; "NVIDIA H200 NVL" is no "NVIDIA H200".
    if (machine.device_name == system.device_name ||
        (absl::EndsWith(system.device_name, "SXM4") &&
         absl::StartsWith(machine.device_name, system.device_name))) {
      return &system;
    }
  }
  return nullptr;
}

std::string CompleteFromDataSheet(Machine& machine) {
  const SystemSpec* const system = SystemOfMachine(machine);
  if (system == nullptr) {
    return "";
  }
  std::vector<absl::string_view> filled;
  Fill(machine.peak_bandwidth_gb_per_s, system->bandwidth_gb_per_s, "memory bandwidth", filled);
  Fill(machine.peak_bf16_tflop_per_s, system->bf16_tflop_per_s, "bf16", filled);
  Fill(machine.peak_fp8_tflop_per_s, system->fp8_tflop_per_s, "fp8", filled);
  Fill(machine.peak_fp4_tflop_per_s, system->fp4_tflop_per_s, "fp4", filled);
  Fill(machine.link_gb_per_s, system->link_gb_per_s, "link", filled);
  return filled.empty() ? ""
                        : absl::StrCat("peaks of ", machine.device_name,
                                       " from its data sheet: ", absl::StrJoin(filled, ", "));
}

absl::StatusOr<const SystemSpec*> FindSystem(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const SystemSpec& system : kSystems) {
    if (system.name == name) {
      return &system;
    }
    names.push_back(system.name);
  }
  return absl::NotFoundError(absl::StrCat("unknown system \"", name, "\"; there are ",
                                          absl::StrJoin(names, ", "), DidYouMean(name, names)));
}

double SystemDistance(const SystemSpec& a, const SystemSpec& b) {
  const auto apart = [](double x, double y) { return std::abs(std::log(x / y)); };
  if (a.name == b.name) {
    return 0;
  }
  return (a.architecture == b.architecture ? 0.1 : 1.0) +
         apart(a.bandwidth_gb_per_s, b.bandwidth_gb_per_s) +
         apart(a.fp32_tflop_per_s, b.fp32_tflop_per_s) / 2 +
         apart(a.bf16_tflop_per_s, b.bf16_tflop_per_s) / 4;
}

}  // namespace lastflop
