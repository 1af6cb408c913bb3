#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/expert_counts.h"
#include "planner/cost/measured_rows.h"
#include "planner/cost/systems.h"

// The time of one MoE layer call from bytes, flop, tiles and launches, with a few parameters a
// family of kernels.
namespace lastflop {

// What a row asks of its rank.
struct MoeWork {
  const SystemSpec* system = nullptr;
  ExpertCounts counts;
  double tile_rows = 0;
  double expert_bytes = 0;       // Weights of one expert, as the rank has it.
  double expert_flop = 0;        // Of one row through one expert.
  double activation_bytes = 0;   // Read and written between the products.
  double blocks = 0;             // Output tiles of both products, each a block's work.
  double tail_bytes = 0;         // What one block streams one after the other; 0: blocks share it.
  double peak_flop_per_us = 0;   // Of the units that the kernel uses.
  double ideal_flop_per_us = 0;  // The data sheet's.
  bool is_expert_parallel = false;
  bool warm = false;
};

// InvalidArgument: unknown dtype or distribution, sizes that do not divide. NotFound: system.
absl::StatusOr<MoeWork> WorkOfRow(const MoeLayerRow& row);

// Logarithms of: launch us, DRAM share, unpacking TB/s per 2 fp32 TFLOP/s, share of the product
// peak, activation TB/s, power of the overlap, L2 TB/s, one block's GB/s, us of a
// multiprocessor that a block costs beside its data, odds that a second tile of an expert reads its
// weights again, us of expert parallelism.
inline constexpr size_t kNumMoeParameters = 11;
using MoeParameters = std::array<double, kNumMoeParameters>;

// t = launches + ((DRAM or L2 reads)^p + (unpacking + products + blocks' starts and ends)^p
//                 + (one block's stream)^p)^(1/p) + activations
double MoeLayerMicros(const MoeWork& work, std::span<const double> parameters);

// What nothing can beat: cold weights over peak bandwidth (warm: what the L2 does not hold), flop
// over peak.
double MoeFloorMicros(const MoeWork& work);

// Parameters before any row is seen, and how sure they are. By dtype; the spread is of logarithms.
MoeParameters PriorMean(const std::string& dtype);
MoeParameters PriorDeviation();

// Parameters of rows that share kernel, dtype and system. `latencies` in us, one a row.
MoeParameters FitMoeCurve(std::span<const MoeWork> works, std::span<const double> latencies,
                          const std::string& dtype);

}  // namespace lastflop
