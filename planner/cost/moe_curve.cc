#include "planner/cost/moe_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/least_squares.h"
#include "planner/cost/units.h"

namespace lastflop {
namespace {

constexpr double kBf16Bytes = 2;
constexpr double kBlockColumns = 128;
// A working set up to this share of the L2 is read from it entirely, one of the second not at all.
constexpr double kWholeInL2 = 0.85;
constexpr double kNoneInL2 = 1.45;
// Bandwidth of one SM of the H200, bytes/us: what a block's stream is measured against.
constexpr double kH200SmBandwidth = 4.8e6 / 132;
// Rows that a fit must hold for the prior to weigh no more than one of them.
constexpr double kPriorRows = 40;

struct Dtype {
  absl::string_view name;
  double bytes;        // A weight, scales included.
  double unpack_rate;  // Prior: TB/s per 2 fp32 TFLOP/s.
  double SystemSpec::*peak;
};

constexpr Dtype kDtypes[] = {
    {"int4_wo", 0.5625, 0.14, &SystemSpec::bf16_tflop_per_s},
    {"w4a16_mxfp4", 0.53125, 0.14, &SystemSpec::bf16_tflop_per_s},
    {"mxfp4", 0.53125, 0.4, &SystemSpec::fp4_tflop_per_s},
    {"nvfp4", 0.5625, 0.4, &SystemSpec::fp4_tflop_per_s},
    {"fp8_block", 1, 0.7, &SystemSpec::fp8_tflop_per_s},
    {"fp8", 1, 0.7, &SystemSpec::fp8_tflop_per_s},
    {"bf16", 2, 1.4, &SystemSpec::bf16_tflop_per_s},
    {"float16", 2, 1.4, &SystemSpec::bf16_tflop_per_s},
};

const Dtype* FindDtype(absl::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) {
      return &dtype;
    }
  }
  return nullptr;
}

// Rows of a tile: Marlin takes the smallest that average experts fill to less than 0.9; Triton's
// default is small until experts are large.
double TileRows(absl::string_view kernel, double mean_pairs) {
  if (absl::StrContains(kernel, "marlin")) {
    for (const double rows : {8.0, 16.0, 32.0, 48.0}) {
      if (mean_pairs / rows < 0.9) {
        return rows;
      }
    }
    return 64;
  }
  if (absl::StrContains(kernel, "triton")) {
    return mean_pairs <= 16 ? 16 : 64;
  }
  return 128;
}

// Part of the rank's weights that a repeated call finds in the L2.
double L2Share(const MoeWork& work) {
  if (!work.warm) {
    return 0;
  }
  const double set = work.counts.unique_experts * work.expert_bytes + work.activation_bytes;
  return std::clamp((kNoneInL2 - set / work.system->l2_bytes) / (kNoneInL2 - kWholeInL2), 0.0, 1.0);
}

}  // namespace

absl::StatusOr<MoeWork> WorkOfRow(const MoeLayerRow& row) {
  MoeWork work;
  LASTFLOP_ASSIGN_OR_RETURN(work.system, FindSystem(row.system));
  const Dtype* dtype = FindDtype(row.dtype);
  if (dtype == nullptr) {
    std::string known;
    for (const Dtype& candidate : kDtypes) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", candidate.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("dtype \"", row.dtype, "\" is unknown; there are ", known));
  }
  if (row.hidden < 1 || row.inter < 1 || row.tp < 1 || row.inter % row.tp != 0) {
    return absl::InvalidArgumentError(absl::StrCat("hidden=", row.hidden, ", inter=", row.inter,
                                                   ", tp=", row.tp, ": tp divides inter"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      const auto draws, ExpertPairs(row.distribution, row.tokens, row.experts, row.topk, row.ep));
  const bool is_marlin = absl::StrContains(row.kernel_source, "marlin");
  const bool is_triton = absl::StrContains(row.kernel_source, "triton");
  const auto hidden = static_cast<double>(row.hidden);
  const auto tokens = static_cast<double>(row.tokens);
  const double all_pairs = tokens * static_cast<double>(row.topk);
  const int64_t inter_of_rank = row.inter / row.tp;
  const auto inter = static_cast<double>(inter_of_rank);
  work.tile_rows = TileRows(row.kernel_source, all_pairs * static_cast<double>(row.ep) /
                                                   static_cast<double>(row.experts));
  work.counts = CountTiles(draws, work.tile_rows);
  work.blocks = work.counts.tiles * (2 * inter + hidden) / kBlockColumns;
  work.expert_bytes = 3 * hidden * inter * dtype->bytes;
  work.expert_flop = 6 * hidden * inter;
  // The activation and the weighted sum run over all pairs, also those of other ranks.
  work.activation_bytes = all_pairs * (hidden + 3 * inter) * kBf16Bytes +
                          work.counts.pairs * (hidden + inter) * kBf16Bytes +
                          tokens * hidden * kBf16Bytes;
  work.tail_bytes = !is_triton ? 0 : (hidden / 4 + inter) * kBlockColumns * dtype->bytes;
  double peak = work.system->*(dtype->peak);
  if (!(peak > 0)) {
    peak = work.system->bf16_tflop_per_s;  // No such units: products run in bf16.
  }
  work.ideal_flop_per_us = peak * kFlopPerMicroPerTflopPerS;
  work.peak_flop_per_us = work.ideal_flop_per_us * (is_marlin ? work.system->mma_sync_share : 1);
  work.is_expert_parallel = row.ep > 1;
  work.warm = row.warm;
  return work;
}

double MoeLayerMicros(const MoeWork& work, std::span<const double> parameters) {
  const auto value = [&](size_t i) { return std::exp(parameters[i]); };
  const SystemSpec& system = *work.system;
  const double bandwidth = system.bandwidth_gb_per_s * kBytesPerMicroPerGbPerS;
  const double odds = value(9);
  const double reads = (work.counts.unique_experts +
                        odds / (1 + odds) * (work.counts.tiles - work.counts.unique_experts)) *
                       work.expert_bytes;
  const double l2_share = L2Share(work);
  const double dram = reads * (1 - l2_share) / (value(1) * bandwidth) +
                      reads * l2_share / (value(6) * kBytesPerMicroPerTbPerS);
  const double unpack = work.counts.tiles * work.expert_bytes /
                        (value(2) * kBytesPerMicroPerTbPerS * system.fp32_tflop_per_s / 2);
  // A narrow expert's down product is a few steps of work a block: starting and ending it counts.
  const double turns = work.blocks * value(8) / (system.num_sms * system.relative_clock());
  const double products =
      work.counts.tiles * work.tile_rows * work.expert_flop / (value(3) * work.peak_flop_per_us);
  const double stream = work.tail_bytes / (value(7) * kBytesPerMicroPerGbPerS *
                                           (bandwidth / system.num_sms / kH200SmBandwidth));
  const double power = value(5);
  const double busy = std::pow(
      std::pow(dram, power) + std::pow(unpack + products + turns, power) + std::pow(stream, power),
      1 / power);
  const double launches =
      (value(0) + (work.is_expert_parallel ? value(10) : 0)) / system.relative_clock();
  return launches + busy + work.activation_bytes / (value(4) * kBytesPerMicroPerTbPerS);
}

double MoeFloorMicros(const MoeWork& work) {
  const double bytes = work.counts.unique_experts * work.expert_bytes;
  const double in_l2 = work.warm ? std::min(bytes, work.system->l2_bytes) : 0;
  return std::max((bytes - in_l2) / (work.system->bandwidth_gb_per_s * kBytesPerMicroPerGbPerS),
                  work.counts.pairs * work.expert_flop / work.ideal_flop_per_us);
}

MoeParameters PriorMean(const std::string& dtype) {
  const Dtype* found = FindDtype(dtype);
  MoeParameters mean = {
      30, 0.94, found == nullptr ? 0.4 : found->unpack_rate, 0.6, 1.0, 2, 5, 15, 0.6, 0.2, 3};
  for (double& value : mean) {
    value = std::log(value);
  }
  return mean;
}

MoeParameters PriorDeviation() { return {0.5, 0.015, 0.3, 0.3, 0.8, 0.2, 0.3, 0.3, 0.7, 1, 1}; }

MoeParameters FitMoeCurve(std::span<const MoeWork> works, std::span<const double> latencies,
                          const std::string& dtype) {
  const MoeParameters mean = PriorMean(dtype);
  const MoeParameters deviation = PriorDeviation();
  FitProblem problem;
  problem.prior_mean.assign(mean.begin(), mean.end());
  problem.prior_deviation.assign(deviation.begin(), deviation.end());
  problem.num_rows = works.size();
  problem.prior_weight = std::max(1.0, static_cast<double>(works.size()) / kPriorRows);
  problem.residuals = [&](std::span<const double> parameters, std::span<double> residuals) {
    for (size_t i = 0; i < works.size(); ++i) {
      residuals[i] = std::log(MoeLayerMicros(works[i], parameters) / latencies[i]);
    }
  };
  const std::vector<double> fitted = FitLeastSquares(problem);
  MoeParameters parameters;
  std::copy(fitted.begin(), fitted.end(), parameters.begin());
  return parameters;
}

}  // namespace lastflop
