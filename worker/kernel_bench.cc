#include "worker/kernel_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/gang.h"
#include "common/relative_distance.h"
#include "common/status_macros.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kGangTimeout{10'000};
// Draws that are checked until one gives this rank something to compute where it is compared.
constexpr int64_t kMostChecks = 8;
constexpr int kBreakdownSamples = 5;

// In the order of their rows; a CPU has no library to call.
std::vector<MoeKernel> KernelsOf(const Machine& machine) {
  std::vector<MoeKernel> kernels = {MoeKernel::kGrouped, MoeKernel::kFused};
  if (machine.backend == "cuda") {
    kernels.push_back(MoeKernel::kCublaslt);
  }
  return kernels;
}

double QuantileOf(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

// What says that this kernel does not run here, and nothing about others.
bool IsAboutKernel(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsInvalidArgument(status) ||
         absl::IsResourceExhausted(status);
}

// One kernel at one batch.
class RowBench {
 public:
  RowBench(const KernelBenchRequest& request, const Machine& machine, MoeKernel kernel,
           int64_t batch)
      : request_(request), machine_(machine), plan_(PlanOf(request)) {
    plan_.moe.kernel = kernel;
    plan_.launch.graph = machine.backend == "cuda" ? GraphMode::kFull : GraphMode::kNone;
    point_.batch = batch;
    point_.context = 1;
    point_.routing = request.routing;
    row_.kernel = std::string(ToWord(kernel));
    row_.batch = batch;
    row_.config =
        absl::StrCat("weights=", ToWord(ExpertStorage(request.model, plan_).format),
                     " tile_order=", ToWord(plan_.moe.tile_order), " samples=", request.samples);
  }

  absl::StatusOr<KernelBenchRow> Run(Backend& backend, Gang& gang) {
    const absl::Status status = Measure(backend, gang);
    if (!status.ok() && !IsAboutKernel(status)) {
      return status;
    }
    if (!status.ok()) {
      row_.reason = std::string(status.message());
    }
    return row_;
  }

 private:
  absl::Status Measure(Backend& backend, Gang& gang) {
    LASTFLOP_RETURN_IF_ERROR(backend.StartAttempt(plan_, plan_, point_, gang));
    LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> arm, backend.Prepare(plan_, point_, gang));
    const std::string note = arm->effective_note();
    if (!note.empty()) {
      absl::StrAppend(&row_.config, "; ", note);
    }
    LASTFLOP_RETURN_IF_ERROR(Check(*arm));
    if (!row_.reason.empty()) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> before, OutputOfCheckedDraw(*arm));
    LASTFLOP_RETURN_IF_ERROR(Time(*arm));
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> after, OutputOfCheckedDraw(*arm));
    // The same kernels on the same inputs; sums that threads share may come in another order.
    constexpr double kOrderTolerance = 0.01;
    const double drift = RelativeDistance(after, before);
    if (!(drift <= kOrderTolerance)) {
      row_.us.reset();
      row_.reason = absl::StrCat("after the timed runs its output differs by ", drift);
    }
    return row_.us.has_value() ? BreakDown(*arm) : absl::OkStatus();
  }

  absl::Status Check(Arm& arm) {
    for (checked_draw_ = 0; checked_draw_ < kMostChecks; ++checked_draw_) {
      LASTFLOP_ASSIGN_OR_RETURN(const CheckResult check, arm.Check(checked_draw_));
      row_.error = check.max_error;
      row_.reason = check.ok ? "" : check.detail;
      if (!check.ok || check.max_error > 0) {
        return absl::OkStatus();
      }
    }
    checked_draw_ = kMostChecks - 1;
    return absl::OkStatus();
  }

  absl::Status BreakDown(Arm& arm) {
    LASTFLOP_ASSIGN_OR_RETURN(const Arm::Breakdown breakdown,
                              arm.MeasureBreakdown(kBreakdownSamples));
    for (const BreakdownEntry& entry : breakdown.entries) {
      if (entry.us > 0 && entry.category != OpCategory::kHost) {
        row_.ops.emplace_back(entry.op, entry.us / static_cast<double>(num_layers()));
      }
    }
    absl::StrAppend(&row_.config, "; ops by ", breakdown.method);
    // They are runs of their own: where something else took the device or the cores meanwhile they
    // say nothing of the time above.
    double sum = 0;
    for (const auto& [op, us] : row_.ops) {
      sum += us;
    }
    constexpr double kMostExcess = 1.5;
    if (sum > kMostExcess * *row_.us) {
      absl::StrAppend(&row_.config, "; ops add up to ", absl::StrFormat("%.1f", sum / *row_.us),
                      " times `us`: something else used the device while they were timed");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> OutputOfCheckedDraw(Arm& arm) const {
    LASTFLOP_RETURN_IF_ERROR(arm.SetDraw(checked_draw_));
    LASTFLOP_RETURN_IF_ERROR(arm.Run().status());
    return arm.Output();
  }

  absl::Status Time(Arm& arm) {
    const auto layers = static_cast<double>(num_layers());
    std::vector<double> times;
    ExpertLoad load;
    for (int64_t i = 1; i <= request_.samples; ++i) {
      LASTFLOP_RETURN_IF_ERROR(arm.SetDraw(kMostChecks + i));
      LASTFLOP_ASSIGN_OR_RETURN(const StepTiming timing, arm.Run());
      if (timing.us < arm.least_possible_us()) {
        row_.reason = absl::StrCat("invalid: ", timing.us / layers,
                                   " us are less than the device's declared peaks allow");
        return absl::OkStatus();
      }
      times.push_back(timing.us / layers);
      const auto share = 1 / static_cast<double>(request_.samples);
      load.pairs += share * arm.load().pairs;
      load.unique_experts += share * arm.load().unique_experts;
    }
    std::sort(times.begin(), times.end());
    const double us = QuantileOf(times, 0.5);
    row_.us = us;
    row_.noise = (QuantileOf(times, 0.75) - QuantileOf(times, 0.25)) / us;
    row_.unique_experts = load.unique_experts;
    row_.pairs = load.pairs;
    return SetFloor(load, us);
  }

  // All of a layer's bytes in one read: the sum of its ops' own floors would count what a read
  // costs beside its bytes several times.
  absl::Status SetFloor(const ExpertLoad& load, double us) {
    LASTFLOP_ASSIGN_OR_RETURN(const Step step,
                              MakeStep(request_.model, plan_, point_, /*rank=*/0,
                                       {.layers_kept = 1, .load = load, .experts_only = true}));
    Op layer;
    layer.shape = FusedMoeShape{};
    for (const Op& op : step.ops) {
      if (std::holds_alternative<RouterShape>(op.shape)) {
        continue;  // No part of a run.
      }
      layer.work.weight_bytes += op.work.weight_bytes;
      layer.work.flop += op.work.flop;
    }
    row_.floor_us = FloorMicros(layer, machine_);
    const auto read = ColdReadMicros(machine_, layer.work.weight_bytes);
    if (read.has_value()) {
      row_.read_share = *read / us;
    }
    return absl::OkStatus();
  }

  int64_t num_layers() const { return request_.model.num_moe_layers(); }

  const KernelBenchRequest& request_;
  const Machine& machine_;
  Plan plan_;
  Point point_;
  KernelBenchRow row_;
  int64_t checked_draw_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<KernelBenchRow>> BenchKernels(const KernelBenchRequest& request,
                                                         const Machine& machine, Backend& backend) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<Gang> gang, JoinGang("", 0, 1, kGangTimeout));
  const std::map<std::string, std::string> before = backend.Environment();
  std::vector<KernelBenchRow> rows;
  for (const int64_t batch : request.batches) {
    for (const MoeKernel kernel : KernelsOf(machine)) {
      LASTFLOP_ASSIGN_OR_RETURN(KernelBenchRow row,
                                RowBench(request, machine, kernel, batch).Run(backend, *gang));
      if (row.us.has_value()) {
        for (const auto& [key, value] : backend.Environment()) {
          const auto was = before.find(key);
          if (was == before.end() || was->second != value) {
            row.environment.emplace_back(key, value);
          }
        }
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace lastflop
