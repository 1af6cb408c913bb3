#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/plan.h"

// `lastflop kernels bench`: what the command asks of lastflop-worker, and what it answers.
namespace lastflop {

struct KernelBenchRequest {
  Model model;
  // Experts are spread over `expert` groups of ranks, each sliced over what is left of `tensor`.
  int64_t tensor = 1;
  int64_t expert = 1;
  // Whose share of the routing is timed: each layer's most loaded rank, or the first rank, which
  // has a mean share.
  bool most_loaded = false;
  std::optional<WeightFormat> weights;  // Of experts; nullopt: as the model stores them.
  std::vector<int64_t> batches;         // Tokens, over all ranks.
  Routing routing;
  int64_t samples = 20;  // Timed draws a row, each over all layers that are kept.
  std::string device;    // "cpu:0", "cuda:0"; "": the first GPU where this build has one.
};

// The plan whose experts are timed; moe.kernel varies by row.
Plan PlanOf(const KernelBenchRequest& request);

// One kernel at one batch. Numbers are absent where the kernel does not run or gives a wrong
// result; `reason` says why.
struct KernelBenchRow {
  std::string kernel;
  int64_t batch = 0;
  std::optional<double> us;  // Median over draws, from top-k ids to the summed output, of a layer.
  std::optional<double> unique_experts;  // Of this rank, a layer; mean over draws.
  std::optional<double> pairs;
  std::optional<double> floor_us;    // Cold read of the experts' bytes, or their flop at the peak.
  std::optional<double> read_share;  // The time of that cold read over `us`.
  std::optional<double> noise;       // Quartile distance over the median.
  std::optional<double> error;       // Largest relative row error of an op against its reference.
  // Where the time goes: us a layer of each op, from runs of their own with every op timed apart.
  std::vector<std::pair<std::string, double>> ops;
  // What the device says of itself while the row is timed: clocks, power, throttling.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string config;
  std::string reason;
};

struct KernelBenchResult {
  std::string model;
  int64_t tensor = 1;
  int64_t expert = 1;
  std::string rank;  // mean, max
  std::string weights;
  Routing routing;
  std::vector<std::pair<std::string, std::string>>
      environment;                        // Of the device, what no row says of its own.
  std::vector<ReadCurvePoint> cold_read;  // Measured in the same run.
  std::optional<double> peak_bf16_tflop_per_s;
  std::vector<KernelBenchRow> rows;
};

// Round trips lose nothing; InvalidArgument names an unknown key or word.
std::string ToJson(const KernelBenchRequest& request);
absl::StatusOr<KernelBenchRequest> KernelBenchRequestFromJson(absl::string_view text);
std::string ToJson(const KernelBenchResult& result);
absl::StatusOr<KernelBenchResult> KernelBenchResultFromJson(absl::string_view text);

}  // namespace lastflop
