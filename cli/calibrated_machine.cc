#include "cli/calibrated_machine.h"

#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace lastflop {
namespace {

constexpr int kMostNameBytes = 60;

struct AllReduceTime {
  double bytes = 0;
  double us = 0;
  double ranks = 0;
  std::string algorithm;
};

struct SmallAndLarge {
  AllReduceTime small;
  AllReduceTime large;
};

// Of chains of dependent calls, as a step has them.
std::optional<SmallAndLarge> EndsOf(const nlohmann::json& rows) {
  std::optional<SmallAndLarge> ends;
  for (const nlohmann::json& row : rows) {
    if (row.at("operation") != "all_reduce" || row.at("chain") != "dependent" ||
        row.at("correct") != true) {
      continue;
    }
    const AllReduceTime time{.bytes = row.at("bytes").get<double>(),
                             .us = row.at("us").get<double>(),
                             .ranks = row.at("ranks").get<double>(),
                             .algorithm = row.at("algorithm").get<std::string>()};
    if (!ends.has_value()) {
      ends = {.small = time, .large = time};
    }
    if (time.bytes < ends->small.bytes) {
      ends->small = time;
    }
    if (time.bytes > ends->large.bytes) {
      ends->large = time;
    }
  }
  return ends;
}

// What each rank of a ring sends.
double SentBytes(const AllReduceTime& time) {
  return 2 * (time.ranks - 1) / time.ranks * time.bytes;
}

void TakeOver(const std::optional<double>& from, const char* key, const std::string& origin,
              std::optional<double>& to, CalibratedMachine& calibrated) {
  if (from.has_value() && !to.has_value()) {
    to = from;
    calibrated.origins[key] = origin;
  }
}

}  // namespace

CalibratedMachine DescribeMeasured(const Machine& machine, absl::string_view when) {
  CalibratedMachine calibrated{.machine = machine, .origins = {}, .left_out = {}};
  const bool is_gpu = machine.backend == "cuda";
  calibrated.machine.source =
      absl::StrCat("reported by ", is_gpu ? "the driver" : "the system", " to ", when);
  const auto measured = [&](const char* key, absl::string_view how) {
    calibrated.origins[key] = absl::StrCat("measured by ", when, ": ", how);
  };
  if (!machine.cold_read.empty()) {
    measured("cold_read", is_gpu ? "median of 9 reads in a CUDA graph, neighbours of each other, "
                                   "with a cold L2"
                                 : absl::StrCat("fastest of 9 reads that no cache holds, by ",
                                                machine.num_cores, " cores together"));
  }
  if (machine.measured_bf16_tflop_per_s.has_value()) {
    measured("measured_bf16_tflop_per_s",
             is_gpu ? std::string("fastest bf16 product of cuBLASLt, 4096^3 and 8192^3")
                    : absl::StrCat(
                          "each core's fastest of 120 runs of fp32 multiply-adds on registers, on ",
                          machine.num_cores, " cores together"));
  }
  if (machine.launch_gap_us.has_value()) {
    measured("launch_gap_us",
             "200 reads of 16 MB in the L2 launched one by one, less the same in a graph, a read");
  }
  return calibrated;
}

absl::Status AddAllReduces(const std::string& bench_json, absl::string_view when,
                           CalibratedMachine& calibrated) {
  const nlohmann::json document = nlohmann::json::parse(bench_json, nullptr, false);
  if (document.is_discarded() || !document.contains("rows")) {
    return absl::NotFoundError("no rows");
  }
  const std::optional<SmallAndLarge> ends = EndsOf(document.at("rows"));
  if (!ends.has_value() || ends->large.bytes <= ends->small.bytes) {
    return absl::NotFoundError("fewer than two sizes with a correct result");
  }
  const auto& [small, large] = *ends;
  const double difference_us = large.us - small.us;
  if (!(difference_us > 0)) {
    return absl::NotFoundError(absl::StrCat(large.bytes, " bytes took ", large.us,
                                            " us, no more than ", small.us, " us of ", small.bytes,
                                            " bytes"));
  }
  const double bytes_per_us = (SentBytes(large) - SentBytes(small)) / difference_us;
  const std::string how =
      absl::StrCat("measured by ", when, ": all-reduces in a chain, ", large.ranks, " ranks, ");
  const double transfer_us = SentBytes(small) / bytes_per_us;
  if (small.us > transfer_us) {
    calibrated.machine.collective_latency_us = small.us - transfer_us;
    calibrated.origins["collective_latency_us"] =
        absl::StrCat(how, small.algorithm, " of ", static_cast<int64_t>(small.bytes),
                     " bytes, less its transfer");
  } else {
    calibrated.left_out.push_back(absl::StrCat(
        "collective_latency_us is left out: ", small.bytes, " bytes took ", small.us,
        " us, no more than their transfer at the measured rate, ", transfer_us, " us"));
  }
  calibrated.machine.measured_link_gb_per_s = bytes_per_us / kBytesPerMicroPerGbPerS;
  calibrated.origins["measured_link_gb_per_s"] =
      absl::StrCat(how, large.algorithm, " of ", static_cast<int64_t>(large.bytes),
                   " bytes, bytes that a ring would send");
  return absl::OkStatus();
}

void AddDeclared(const Machine& declared, absl::string_view file, CalibratedMachine& calibrated) {
  const std::string origin = absl::StrCat("declared in ", file, ", which says where it is from");
  Machine& machine = calibrated.machine;
  TakeOver(declared.peak_bandwidth_gb_per_s, "peak_bandwidth_gb_per_s", origin,
           machine.peak_bandwidth_gb_per_s, calibrated);
  TakeOver(declared.peak_bf16_tflop_per_s, "peak_bf16_tflop_per_s", origin,
           machine.peak_bf16_tflop_per_s, calibrated);
  TakeOver(declared.peak_fp8_tflop_per_s, "peak_fp8_tflop_per_s", origin,
           machine.peak_fp8_tflop_per_s, calibrated);
  TakeOver(declared.peak_fp4_tflop_per_s, "peak_fp4_tflop_per_s", origin,
           machine.peak_fp4_tflop_per_s, calibrated);
  TakeOver(declared.link_gb_per_s, "link_gb_per_s", origin, machine.link_gb_per_s, calibrated);
  TakeOver(declared.collective_latency_us, "collective_latency_us", origin,
           machine.collective_latency_us, calibrated);
}

std::string MachineFileName(const Machine& machine) {
  std::string name;
  for (const char c : machine.device_name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      name.push_back(static_cast<char>(std::tolower(byte)));
    } else if (!name.empty() && name.back() != '-') {
      name.push_back('-');
    }
    if (name.size() >= kMostNameBytes) {
      break;
    }
  }
  while (!name.empty() && name.back() == '-') {
    name.pop_back();
  }
  if (name.empty()) {
    name = machine.backend;
  }
  return machine.backend == "cuda" && machine.num_devices > 1
             ? absl::StrCat(name, "-x", machine.num_devices)
             : name;
}

}  // namespace lastflop
