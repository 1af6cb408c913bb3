#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lastflop {

// Time to read `bytes` that no cache holds.
struct ReadCurvePoint {
  double bytes = 0;
  double us = 0;
};

// A host and its devices, detected or read from experiments/machines/. Peaks are per device; unset
// means unknown, and what depends on it is n/a.
struct Machine {
  std::string name;             // "auto" until detected.
  std::string backend = "cpu";  // cpu | cuda
  std::string device_name;      // "NVIDIA H200", or the CPU's model name.
  std::string architecture;     // "sm_90a", "x86_64 avx2"
  int64_t num_devices = 0;      // cuda: GPUs. cpu: cores.
  int64_t num_cores = 0;
  int64_t memory_bytes = 0;                       // Of one device; cpu: of the host.
  int64_t l2_bytes = 0;                           // Last-level cache.
  std::optional<double> peak_bandwidth_gb_per_s;  // Declared; faster than it is invalid.
  std::optional<double> peak_bf16_tflop_per_s;
  std::optional<double> peak_fp8_tflop_per_s;
  std::optional<double> peak_fp4_tflop_per_s;
  std::optional<double> measured_bf16_tflop_per_s;  // cpu: of all cores together, all formats.
  std::optional<double> link_gb_per_s;              // One direction, device to device.
  std::optional<double> measured_link_gb_per_s;     // What a large all-reduce got of it.
  std::optional<double> collective_latency_us;      // One small all-reduce.
  std::optional<double> launch_gap_us;    // Between kernels that no graph launches, beyond
                                          // what a graph leaves between them.
  std::string link;                       // nvlink | pcie | shared_memory
  std::vector<ReadCurvePoint> cold_read;  // Ascending bytes.
  std::string source;                     // Where the numbers are from.
};

// What one of `num_ranks` ranks on the machine may count on while all of them work. cuda: a device
// of its own, so the machine as it is. cpu: its part of the cores' bandwidth and products, so the
// same times for 1 / num_ranks of the bytes, and 1 / num_ranks of the measured rate.
Machine PartOfRank(Machine machine, int64_t num_ranks);

// Time to read `bytes` from the cold-read curve: interpolated between points (log-log), linear in
// bytes beyond the last; peak bandwidth when there is no curve; nullopt when neither is known.
std::optional<double> ColdReadMicros(const Machine& machine, double bytes);

}  // namespace lastflop
