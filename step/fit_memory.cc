#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "step/make_step.h"
#include "step/tensors.h"

namespace lastflop {
namespace {

constexpr int64_t kMostDevices = 1024;

// Bytes of a message to another stage; 0 of other ops.
double SentBytes(const Op& op) {
  const auto* transfer = std::get_if<StageTransferShape>(&op.shape);
  return transfer != nullptr ? op.work.link_bytes : 0;
}

// Memory of `step` on its rank; micro-batches share weights and workspace but not the cache, the
// final hidden states and the room for messages on their way to the next stage.
MemoryFit FitOfStep(const Model& model, const Step& step) {
  MemoryFit fit;
  const auto micro_batches = static_cast<double>(step.micro_batches);
  for (const Op& op : step.ops) {
    const bool is_tied_head = model.tie_word_embeddings && op.name == "lm_head";
    fit.weight_bytes += is_tied_head ? 0 : WeightMemoryBytes(op);
    fit.cache_bytes += CacheMemoryBytes(op) * micro_batches;
    fit.workspace_bytes += SentBytes(op) * micro_batches;
  }
  for (const auto& [tensor, bytes] : TensorBytes(step)) {
    fit.workspace_bytes += static_cast<double>(bytes) * (tensor == step.output ? micro_batches : 1);
  }
  return fit;
}

// The rank that needs most: the first of each pipeline stage.
MemoryFit FitOfPlan(const Model& model, const Plan& plan, const Point& point, int64_t layers_kept) {
  MemoryFit most;
  double total_bytes = 0;
  const int64_t stage_ranks = plan.parallel.tensor * plan.parallel.data;
  for (int64_t stage = 0; stage < plan.parallel.pipeline; ++stage) {
    const auto step = MakeStep(model, plan, point, static_cast<int>(stage * stage_ranks),
                               {.layers_kept = layers_kept, .load = {}});
    if (!step.ok()) {
      most.weight_bytes = most.total_bytes = std::numeric_limits<double>::infinity();
      return most;
    }
    const MemoryFit fit = FitOfStep(model, *step);
    const auto total = [](const MemoryFit& f) {
      return f.weight_bytes + f.cache_bytes + f.workspace_bytes;
    };
    total_bytes += total(fit) * static_cast<double>(stage_ranks);
    if (total(fit) > total(most)) {
      most = fit;
    }
  }
  most.total_bytes = total_bytes;
  return most;
}

// The plan over `tensor` ranks a replica, experts spread as before.
Plan WithTensorDegree(const Plan& plan, int64_t tensor) {
  Plan wider = plan;
  wider.parallel.tensor = tensor;
  if (plan.parallel.expert == plan.parallel.tensor * plan.parallel.data &&
      plan.parallel.expert > 1) {
    wider.parallel.expert = tensor * plan.parallel.data;
  } else if (plan.parallel.expert > 1) {
    wider.parallel.expert = tensor;
  }
  return wider;
}

}  // namespace

std::string MemoryFit::Describe() const {
  const double needed = weight_bytes + cache_bytes + workspace_bytes;
  const bool is_small = std::max(needed, available_bytes) < kBytesPerGib;
  const double unit = is_small ? kBytesPerGib / 1024 : kBytesPerGib;
  const char* const name = is_small ? "MiB" : "GiB";
  return absl::StrFormat("needs %.1f %s (weights %.1f, cache %.1f, workspace %.1f) of %.1f %s",
                         needed / unit, name, weight_bytes / unit, cache_bytes / unit,
                         workspace_bytes / unit, available_bytes / unit, name);
}

MemoryFit FitMemory(const Model& model, const Plan& plan, const Point& point, int64_t layers_kept,
                    double available_bytes) {
  MemoryFit fit = FitOfPlan(model, plan, point, layers_kept);
  fit.available_bytes = available_bytes;
  for (int64_t tensor = 1; tensor <= kMostDevices && fit.devices_needed == 0; ++tensor) {
    const Plan wider = WithTensorDegree(plan, tensor);
    if (!CheckFeasible(model, wider).ok()) {
      continue;
    }
    MemoryFit candidate = FitOfPlan(model, wider, point, layers_kept);
    candidate.available_bytes = available_bytes;
    if (candidate.fits()) {
      fit.devices_needed = tensor;
    }
  }
  return fit;
}

absl::Status CheckMemory(const Model& model, const Plan& plan, const Point& point,
                         int64_t layers_kept, double available_bytes) {
  const MemoryFit fit = FitMemory(model, plan, point, layers_kept, available_bytes);
  if (fit.fits()) {
    return absl::OkStatus();
  }
  std::string together;
  if (std::isfinite(fit.total_bytes) && available_bytes > 0) {
    absl::StrAppendFormat(&together, "%d ranks together need as much as %.0f have; ",
                          plan.num_ranks(), std::ceil(fit.total_bytes / available_bytes));
  }
  const std::string advice =
      fit.devices_needed > 0 ? absl::StrCat("it would fit at parallel.tensor=", fit.devices_needed)
                             : "no tensor degree makes it fit";
  return absl::ResourceExhaustedError(absl::StrCat("a rank ", fit.Describe(), "; ", together,
                                                   advice, "; model.layers measures fewer layers"));
}

}  // namespace lastflop
