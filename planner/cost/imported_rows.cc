#include "planner/cost/imported_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// The format that rows name; "" for what they have no word for.
absl::string_view DtypeOf(WeightFormat weights, ActivationFormat activations) {
  if (activations == ActivationFormat::kNvfp4) {
    return weights == WeightFormat::kNvfp4 ? "nvfp4" : "";
  }
  switch (weights) {
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      return "int4_wo";
    case WeightFormat::kFp8Block:
      return "fp8_block";
    case WeightFormat::kFp8:
      return "fp8";
    case WeightFormat::kMxfp4:
      return "w4a16_mxfp4";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kNvfp4:
    case WeightFormat::kInt4G32Sparse24:
      return "";
  }
  return "";
}

Origin OriginOf(absl::string_view text) {
  return absl::StartsWith(text, "measured")       ? Origin::kMeasured
         : absl::StartsWith(text, "interpolated") ? Origin::kInterpolated
         : absl::StartsWith(text, "modelled")     ? Origin::kModelled
                                                  : Origin::kAssumed;
}

ImportedTime TimeOf(const RowPrediction& prediction, const SystemSpec* system,
                    const std::string& kernel, const std::string& sources) {
  return {.time = {.us = prediction.us,
                   .low_us = prediction.low_us,
                   .high_us = prediction.high_us,
                   .origin = OriginOf(prediction.origin)},
          .system = system,
          .kernel = kernel,
          .origin = prediction.origin,
          .sources = sources};
}

// The prediction of the nearest system, and of the fastest kernel among those as near.
struct Nearest {
  std::optional<ImportedTime> best;
  double distance = 0;

  void Offer(double at, const ImportedTime& time) {
    if (!best.has_value() || at < distance || (at == distance && time.time.us < best->time.us)) {
      best = time;
      distance = at;
    }
  }
  bool IsTooFar(double at) const { return best.has_value() && at > distance; }
};

bool IsNccl(const std::string& kernel) {
  return absl::StrContains(absl::AsciiStrToLower(kernel), "nccl");
}
bool IsCustomInGraph(const std::string& kernel) {
  return !IsNccl(kernel) && !absl::StrContains(absl::AsciiStrToLower(kernel), "eager");
}

}  // namespace

void ImportedRows::AddKernel(const Kernel& kernel, const std::string& source,
                             std::vector<Kernel>& kernels) {
  auto known = std::find(kernels.begin(), kernels.end(), kernel);
  if (known == kernels.end()) {
    known = kernels.insert(known, kernel);
  }
  if (!absl::StrContains(known->sources, source)) {
    absl::StrAppend(&known->sources, known->sources.empty() ? "" : ", ", source);
  }
}

absl::StatusOr<ImportedRows> ImportedRows::Create(const MeasuredRows& rows) {
  LASTFLOP_ASSIGN_OR_RETURN(MoePredictor moe, MoePredictor::Create(rows.moe));
  LASTFLOP_ASSIGN_OR_RETURN(AllReducePredictor all_reduce,
                            AllReducePredictor::Create(rows.all_reduce));
  ImportedRows imported(std::move(moe), std::move(all_reduce));
  for (const MoeLayerRow& row : rows.moe) {
    LASTFLOP_ASSIGN_OR_RETURN(const SystemSpec* system, FindSystem(row.system));
    AddKernel({.name = row.kernel_source, .dtype = row.dtype, .system = system, .sources = ""},
              row.origin, imported.moe_kernels_);
  }
  for (const AllReduceRow& row : rows.all_reduce) {
    LASTFLOP_ASSIGN_OR_RETURN(const SystemSpec* system, FindSystem(row.system));
    AddKernel({.name = row.kernel, .dtype = "", .system = system, .sources = ""}, row.origin,
              imported.all_reduce_kernels_);
  }
  return imported;
}

std::optional<ImportedTime> ImportedRows::MoeLayer(const Machine& machine,
                                                   const ImportedMoeCall& call) {
  const SystemSpec* system = SystemOfMachine(machine);
  const absl::string_view dtype = DtypeOf(call.weights, call.activations);
  if (system == nullptr || dtype.empty() || call.distribution.empty()) {
    return std::nullopt;
  }
  const std::string key =
      absl::StrCat(system->name, " ", dtype, " ", call.hidden_size, " ", call.moe_intermediate_size,
                   " ", call.num_experts, " ", call.top_k, " ", call.slices, " ",
                   call.expert_groups, " ", call.distribution, " ", call.num_tokens);
  if (const auto found = known_.find(key); found != known_.end()) {
    return found->second;
  }
  Nearest nearest;
  for (const Kernel& kernel : moe_kernels_) {
    const double distance = SystemDistance(*kernel.system, *system);
    if (kernel.dtype != dtype || nearest.IsTooFar(distance)) {
      continue;
    }
    const absl::StatusOr<RowPrediction> prediction =
        moe_.Predict({.system = std::string(system->name),
                      .kernel_source = kernel.name,
                      .dtype = kernel.dtype,
                      .hidden = call.hidden_size,
                      .inter = call.moe_intermediate_size,
                      .experts = call.num_experts,
                      .topk = call.top_k,
                      .tp = call.slices,
                      .ep = call.expert_groups,
                      .distribution = call.distribution,
                      .tokens = call.num_tokens,
                      .warm = false});
    if (prediction.ok()) {
      nearest.Offer(distance, TimeOf(*prediction, kernel.system, kernel.name, kernel.sources));
    }
  }
  known_[key] = nearest.best;
  return nearest.best;
}

std::optional<ImportedTime> ImportedRows::AllReduce(const Machine& machine,
                                                    AllReduceAlgorithm algorithm, int64_t ranks,
                                                    double bytes) {
  const SystemSpec* system = SystemOfMachine(machine);
  if (system == nullptr || ranks < 2 || !(bytes >= 1)) {
    return std::nullopt;
  }
  const bool is_nccl = algorithm == AllReduceAlgorithm::kNccl;
  const std::string key =
      absl::StrCat("all_reduce ", system->name, " ", is_nccl, " ", ranks, " ", bytes);
  if (const auto found = known_.find(key); found != known_.end()) {
    return found->second;
  }
  Nearest nearest;
  for (const Kernel& kernel : all_reduce_kernels_) {
    const double distance = SystemDistance(*kernel.system, *system) +
                            (kernel.system->has_nvlink == system->has_nvlink ? 0 : 3);
    if (!(is_nccl ? IsNccl(kernel.name) : IsCustomInGraph(kernel.name)) ||
        nearest.IsTooFar(distance)) {
      continue;
    }
    const absl::StatusOr<RowPrediction> prediction =
        all_reduce_.Predict({.system = std::string(system->name),
                             .kernel = kernel.name,
                             .gpus = ranks,
                             .bytes = bytes});
    if (prediction.ok()) {
      nearest.Offer(distance, TimeOf(*prediction, kernel.system, kernel.name, kernel.sources));
    }
  }
  known_[key] = nearest.best;
  return nearest.best;
}

}  // namespace lastflop
