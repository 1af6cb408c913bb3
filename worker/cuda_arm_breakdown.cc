#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cupti.h"
#include "step/floors.h"
#include "worker/cuda_arm.h"
#include "worker/cuda_run_op.h"

// CudaArm's breakdown: where does the time of a step go?
namespace lastflop {

// Kernels, copies and fills that each op begins, from a graph of it alone.
absl::StatusOr<std::vector<int>> CudaArm::CountSpans() {
  std::vector<int> counts;
  for (CudaOp& op : step_->ops) {
    if (!RunsOnDevice(*step_, *op.op)) {
      counts.push_back(0);
      continue;
    }
    if (op.plugin != nullptr && op.plugin->needs().capturable == 0) {
      return absl::UnimplementedError(absl::StrCat("plugin:", op.plugin->plugin().name,
                                                   " cannot be captured, which counts kernels"));
    }
    LASTFLOP_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream(), [&] {
                                return RunCudaOp(*step_, op, *parts_.context);
                              }));
    counts.push_back(static_cast<int>(graph.num_work_nodes()));
  }
  return counts;
}

// One step under CUPTI, launched as it is timed, after an untimed one. `has_begun` returns whether
// the trace could be begun.
absl::StatusOr<OpTimes> CudaArm::TracedStep(const std::vector<int>& spans_per_op, bool& has_begun) {
  has_begun = false;
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::vector<DeviceActivity> activity, TraceDevice([&]() -> absl::Status {
        has_begun = true;
        is_captured_ = false;  // Graphs show their kernels when they are made under the trace.
        LASTFLOP_RETURN_IF_ERROR(CaptureOnce());
        LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
        LASTFLOP_RETURN_IF_ERROR(EvictIfNeeded());
        LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
        return Wait();
      }));
  const auto num_spans =
      static_cast<size_t>(std::accumulate(spans_per_op.begin(), spans_per_op.end(), 0));
  std::vector<TimeSpan> spans;
  for (size_t i = activity.size() - std::min(num_spans, activity.size()); i < activity.size();
       ++i) {
    const auto us = [&](uint64_t ns) {
      return static_cast<double>(ns - activity.front().start_ns) * 1e-3;
    };
    spans.push_back({.begin_us = us(activity[i].start_ns), .end_us = us(activity[i].end_ns)});
  }
  return DivideAmongOps(spans, spans_per_op);
}

// Every op of one step between events of its own, enqueued one by one after an untimed step.
absl::StatusOr<OpTimes> CudaArm::EventTimedStep() {
  std::vector<Event> events;
  for (size_t i = 0; i <= step_->ops.size(); ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(Event event, Event::Create());
    events.push_back(std::move(event));
  }
  LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
  LASTFLOP_RETURN_IF_ERROR(EvictIfNeeded());
  LASTFLOP_RETURN_IF_ERROR(events[0].Record(stream().get()));
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(RunCudaOp(*step_, step_->ops[i], *parts_.context));
    LASTFLOP_RETURN_IF_ERROR(events[i + 1].Record(stream().get()));
  }
  LASTFLOP_RETURN_IF_ERROR(Wait());
  OpTimes times;
  times.idle_us.assign(step_->ops.size(), 0.0);
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    LASTFLOP_ASSIGN_OR_RETURN(const double own, events[i + 1].MicrosSince(events[i]));
    times.op_us.push_back(own);
  }
  return times;
}

absl::StatusOr<Arm::Breakdown> CudaArm::MeasureBreakdown(int num_samples) {
  if (num_samples < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a breakdown of ", num_samples, " samples: at least one is needed"));
  }
  Breakdown breakdown{.entries = {}, .step_us = 0, .method = "cupti, kernel by kernel"};
  bool has_cupti = true;
  absl::Status traced = absl::OkStatus();  // Why this rank cannot be.
  std::vector<int> spans_per_op;
  if (!step_->is_idle()) {
    absl::StatusOr<std::vector<int>> counted = CountSpans();
    if (step_->plugin != nullptr && !counted.ok() && !absl::IsDataLoss(counted.status())) {
      traced = counted.status();
    } else {
      LASTFLOP_ASSIGN_OR_RETURN(spans_per_op, std::move(counted));
    }
  }
  PersistingL2 persisting;  // As for a timed step.
  if (pin_.has_value() && !step_->is_idle()) {
    LASTFLOP_RETURN_IF_ERROR(persisting.Set(pin_->limit_bytes));
  }
  std::vector<OpTimes> runs;
  CudaPeerCommunicator* const peers =
      UsesPeerMemory(*step_) ? parts_.context->peers.get() : nullptr;
  if (peers != nullptr) {
    peers->SetStamping(true);
    LASTFLOP_RETURN_IF_ERROR(peers->ResetStamps(stream().get()));
  }
  for (int i = 0;; ++i) {
    // All ranks time alike: a step holds collectives, which all of them run as often.
    LASTFLOP_ASSIGN_OR_RETURN(const bool can_trace, AllSay(traced.ok()));
    if (has_cupti && !can_trace) {
      has_cupti = false;
      breakdown.method = absl::StrCat(
          "eager timeline, events around every op, which add to it (",
          traced.ok() ? "another rank could not be traced" : std::string(traced.message()), ")");
      runs.clear();
      i = 0;
    }
    if (i == num_samples) {
      break;
    }
    if (step_->is_idle()) {
      continue;
    }
    if (!has_cupti) {
      LASTFLOP_ASSIGN_OR_RETURN(OpTimes times, EventTimedStep());
      runs.push_back(std::move(times));
      continue;
    }
    bool has_begun = false;
    absl::StatusOr<OpTimes> times = TracedStep(spans_per_op, has_begun);
    if (times.ok()) {
      runs.push_back(*std::move(times));
      continue;
    }
    traced = times.status();
    if (!has_begun) {  // The others are in the steps that this rank did not begin.
      LASTFLOP_RETURN_IF_ERROR(CaptureOnce());
      LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
      LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
      LASTFLOP_RETURN_IF_ERROR(stream().Synchronize());
    }
  }
  LASTFLOP_RETURN_IF_ERROR(persisting.Reset());
  is_captured_ = false;   // The graphs that were made under a trace are not those that are timed.
  double wait_share = 0;  // Of the collectives: waiting for a late rank.
  if (peers != nullptr) {
    peers->SetStamping(false);
    LASTFLOP_ASSIGN_OR_RETURN(const CudaPeerCommunicator::Stamps stamps,
                              peers->ReadStamps(stream().get()));
    wait_share = stamps.share();
  }
  double wait_us = 0;
  int64_t num_waits = 0;
  const auto median = [&](const auto& of_run) {
    std::vector<double> values;
    for (const OpTimes& run : runs) {
      values.push_back(of_run(run));
    }
    std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
  };
  std::map<std::string, size_t> entry_of;
  double idle_us = HostMicros();
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const Op& op = *step_->ops[i].op;
    const auto [found, is_new] = entry_of.try_emplace(op.name, breakdown.entries.size());
    if (is_new) {
      breakdown.entries.push_back({.category = op.category, .op = op.name});
    }
    const double scale = ScaleOf(i);
    double us =
        scale * (median([i](const OpTimes& run) { return run.op_us[i]; }) + modelled_us_[i]);
    if (peers != nullptr &&
        (step_->ops[i].reduces_first || ((std::holds_alternative<AllReduceShape>(op.shape) ||
                                          std::holds_alternative<AllToAllShape>(op.shape)) &&
                                         RunsOnDevice(*step_, op)))) {
      wait_us += us * wait_share;
      num_waits += std::llround(scale);
      us *= 1 - wait_share;
    }
    idle_us += scale * median([i](const OpTimes& run) { return run.idle_us[i]; });
    BreakdownEntry& entry = breakdown.entries[found->second];
    entry.us += us;
    entry.count += std::llround(scale);
    entry.floor_us += scale * FloorMicros(Priced(i), options_.machine);
    breakdown.step_us += us;
  }
  breakdown.step_us += idle_us + wait_us;
  if (peers != nullptr) {
    breakdown.entries.push_back(
        {.category = OpCategory::kCollective,
         .op = step_->layout.data_attention ? "all_to_all.wait" : "all_reduce.wait",
         .us = wait_us,
         .count = num_waits});
  }
  breakdown.entries.push_back(
      {.category = OpCategory::kHost, .op = "host", .us = idle_us, .count = 1});
  return breakdown;
}

}  // namespace lastflop
