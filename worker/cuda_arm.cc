#include "worker/cuda_arm.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/units.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/read_probe_cuda.h"
#include "step/collective_model.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/padded_experts.h"
#include "step/work.h"
#include "worker/cuda_plugin.h"
#include "worker/cuda_run_op.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

// What piecewise graphs leave out: shapes that an engine's attention backend wants to choose anew.
bool IsOutsideOfPieces(const Op& op) { return op.category == OpCategory::kAttention; }

}  // namespace

CudaArm::CudaArm(std::unique_ptr<CudaStep> step, const BackendOptions& options, Gang& gang,
                 const CudaArmParts& parts)
    : step_(std::move(step)), options_(options), gang_(gang), parts_(parts) {}

absl::StatusOr<std::unique_ptr<Arm>> CudaArm::Create(std::unique_ptr<CudaStep> step,
                                                     const BackendOptions& options, Gang& gang,
                                                     const CudaArmParts& parts) {
  std::unique_ptr<CudaArm> arm(new CudaArm(std::move(step), options, gang, parts));
  CpuCommunicator::Options all;
  all.share_cores = false;
  LASTFLOP_ASSIGN_OR_RETURN(arm->all_ranks_, CpuCommunicator::Create(gang, std::move(all)));
  if (UsesPeerMemory(*arm->step_)) {
    arm->watch_ = parts.context->peers->Watch(gang);
  }
  LASTFLOP_RETURN_IF_ERROR(arm->Prepare());
  return arm;
}

absl::Status CudaArm::Prepare() {
  LASTFLOP_ASSIGN_OR_RETURN(begin_, Event::Create());
  LASTFLOP_ASSIGN_OR_RETURN(end_, Event::Create());
  LASTFLOP_RETURN_IF_ERROR(MakeSegments());
  MakePieces();
  modelled_us_.assign(step_->ops.size(), 0.0);
  double cold_bytes = 0;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const Op& op = *step_->ops[i].op;
    if (step_->shard) {
      LASTFLOP_ASSIGN_OR_RETURN(modelled_us_[i], ModelledCollectiveMicros(op, options_.machine));
    }
    // Experts apart, so that the least lucky draw is cold too.
    const Work work = WorkOf(op.shape, {.pairs = 0, .unique_experts = 0});
    cold_bytes += work.weight_bytes + work.cache_bytes;
  }
  evicts_ = cold_bytes < 2 * static_cast<double>(parts_.l2_bytes);
  LASTFLOP_ASSIGN_OR_RETURN(drawer_, CudaDrawer::Create(*step_, *parts_.context, options_.data_seed,
                                                        step_->shard && options_.most_loaded));
  if (step_->plan.moe.l2_pin.has_value() && !step_->is_idle()) {
    LASTFLOP_ASSIGN_OR_RETURN(pin_, ChoosePins(*step_, *drawer_, options_.data_seed));
  }
  return absl::OkStatus();
}

absl::Status CudaArm::MakeSegments() {
  const auto scale_of = [this](const Op& op) {
    if (op.layer < 0) {
      return 1.0;
    }
    return step_->model.layer_kinds[static_cast<size_t>(op.layer)] == LayerKind::kMoe
               ? step_->step.moe_layer_scale
               : step_->step.dense_layer_scale;
  };
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const double scale = scale_of(*step_->ops[i].op);
    if (segments_.empty() || segments_.back().scale != scale) {
      segments_.emplace_back();
      segments_.back().begin = i;
      segments_.back().scale = scale;
    }
    segments_.back().end = i + 1;
  }
  for (Segment& segment : segments_) {
    if (segment.scale != 1) {
      LASTFLOP_ASSIGN_OR_RETURN(segment.start, Event::Create());
      LASTFLOP_ASSIGN_OR_RETURN(segment.stop, Event::Create());
    }
  }
  return absl::OkStatus();
}

void CudaArm::MakePieces() {
  const GraphMode mode = step_->plan.launch.graph;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const bool is_graph = mode == GraphMode::kFull ||
                          (mode == GraphMode::kPiecewise && !IsOutsideOfPieces(*step_->ops[i].op));
    if (pieces_.empty() || pieces_.back().is_graph != is_graph) {
      pieces_.emplace_back();
      pieces_.back().begin = i;
      pieces_.back().is_graph = is_graph;
    }
    pieces_.back().end = i + 1;
  }
}

absl::Status CudaArm::EnqueueOps(size_t begin, size_t end, bool in_graph) {
  const auto record = [&](const std::optional<Event>& event) {
    return in_graph ? event->RecordInGraph(stream().get()) : event->Record(stream().get());
  };
  for (size_t i = begin; i < end; ++i) {
    for (const Segment& segment : segments_) {
      if (segment.start.has_value() && segment.begin == i) {
        LASTFLOP_RETURN_IF_ERROR(record(segment.start));
      }
    }
    LASTFLOP_RETURN_IF_ERROR(RunCudaOp(*step_, step_->ops[i], *parts_.context));
    for (const Segment& segment : segments_) {
      if (segment.stop.has_value() && segment.end == i + 1) {
        LASTFLOP_RETURN_IF_ERROR(record(segment.stop));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CudaArm::CaptureOnce() {
  if (is_captured_ || step_->is_idle()) {
    return absl::OkStatus();
  }
  // Every kernel has run once before it is captured: loading code is no part of a capture.
  LASTFLOP_RETURN_IF_ERROR(EnqueueOps(0, step_->ops.size(), /*in_graph=*/false));
  LASTFLOP_RETURN_IF_ERROR(Wait());
  const Clock::time_point begin = Clock::now();
  for (Piece& piece : pieces_) {
    if (piece.is_graph) {
      LASTFLOP_ASSIGN_OR_RETURN(piece.graph, Graph::Capture(stream(), [&] {
                                  return EnqueueOps(piece.begin, piece.end, /*in_graph=*/true);
                                }));
    }
  }
  capture_us_ = Micros(Clock::now() - begin).count();
  is_captured_ = true;
  return absl::OkStatus();
}

absl::Status CudaArm::EnqueueStep() {
  for (const Piece& piece : pieces_) {
    LASTFLOP_RETURN_IF_ERROR(piece.is_graph
                                 ? piece.graph.Launch(stream())
                                 : EnqueueOps(piece.begin, piece.end, /*in_graph=*/false));
  }
  return absl::OkStatus();
}

absl::Status CudaArm::EvictIfNeeded() {
  if (!evicts_) {
    return absl::OkStatus();
  }
  if (parts_.evictor->bytes() == 0) {
    LASTFLOP_ASSIGN_OR_RETURN(
        *parts_.evictor, DeviceBuffer::Create(static_cast<size_t>(EvictorBytes(parts_.l2_bytes))));
    LASTFLOP_RETURN_IF_ERROR(LaunchFillProbe(
        parts_.evictor->data(), static_cast<int64_t>(parts_.evictor->bytes()), stream().get()));
  }
  // By reading: lines that were written would have to be written back under the timed step.
  const size_t bytes = parts_.evictor->bytes() - static_cast<size_t>(kEvictorSinkBytes);
  return LaunchReadProbe(parts_.evictor->data(), static_cast<int64_t>(bytes),
                         parts_.evictor->As<uint32_t>(bytes), stream().get());
}

absl::Status CudaArm::SetDraw(int64_t draw) {
  if (step_->is_idle()) {
    return absl::OkStatus();
  }
  LASTFLOP_ASSIGN_OR_RETURN(realised_, drawer_->Draw(draw));
  return absl::OkStatus();
}

absl::Status CudaArm::Wait() { return NamingCudaPlugin(*step_, stream().Synchronize()); }

absl::Status CudaArm::StartTogether() { return AllSay(true).status(); }

absl::StatusOr<bool> CudaArm::AllSay(bool yes) {
  const std::vector<std::byte> own(sizeof(int64_t), yes ? std::byte{1} : std::byte{0});
  std::vector<std::byte> all(own.size() * static_cast<size_t>(all_ranks_->num_ranks()));
  LASTFLOP_RETURN_IF_ERROR(all_ranks_->AllGather(own, all).status());
  return std::find(all.begin(), all.end(), std::byte{0}) == all.end();
}

// Device time of one step after an untimed one, each segment scaled.
absl::StatusOr<double> CudaArm::TimedStepMicros() {
  LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
  LASTFLOP_RETURN_IF_ERROR(EvictIfNeeded());
  LASTFLOP_RETURN_IF_ERROR(begin_->Record(stream().get()));
  LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
  LASTFLOP_RETURN_IF_ERROR(end_->Record(stream().get()));
  LASTFLOP_RETURN_IF_ERROR(Wait());
  LASTFLOP_ASSIGN_OR_RETURN(double us, end_->MicrosSince(*begin_));
  for (const Segment& segment : segments_) {
    if (segment.start.has_value()) {
      LASTFLOP_ASSIGN_OR_RETURN(const double own, segment.stop->MicrosSince(*segment.start));
      us += (segment.scale - 1) * own;
    }
  }
  return us;
}

absl::StatusOr<StepTiming> CudaArm::Run() {
  LASTFLOP_RETURN_IF_ERROR(CaptureOnce());
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  StepTiming timing;
  if (step_->is_idle()) {
    return timing;
  }
  PersistingL2 persisting;
  if (pin_.has_value()) {
    LASTFLOP_RETURN_IF_ERROR(persisting.Set(pin_->limit_bytes));
    pin_effective_bytes_ = persisting.effective_bytes();
  }
  LASTFLOP_ASSIGN_OR_RETURN(timing.us, TimedStepMicros());
  LASTFLOP_RETURN_IF_ERROR(persisting.Reset());
  if (parts_.context->nccl != nullptr) {
    LASTFLOP_RETURN_IF_ERROR(parts_.context->nccl->AsyncStatus());
  }
  if (parts_.context->peers != nullptr) {
    LASTFLOP_RETURN_IF_ERROR(parts_.context->peers->Check());
  }
  timing.us += HostMicros() + ModelledMicros();
  timing.throttled = parts_.telemetry->Sample();
  return timing;
}

double CudaArm::HostMicros() const {
  const Plan::Launch& launch = step_->plan.launch;
  double num_launches = 0;
  for (const Piece& piece : pieces_) {
    if (piece.is_graph) {
      // A full graph is one launch however many layers; pieces repeat with their layers.
      num_launches += pieces_.size() == 1 ? 1 : ScaleOf(piece.begin);
      continue;
    }
    for (size_t i = piece.begin; i < piece.end; ++i) {
      num_launches += ScaleOf(i);
    }
  }
  return launch.host_us_per_step + launch.host_us_per_launch * num_launches;
}

double CudaArm::ModelledMicros() const {
  double us = 0;
  for (size_t i = 0; i < modelled_us_.size(); ++i) {
    us += ScaleOf(i) * modelled_us_[i];
  }
  return us;
}

double CudaArm::ScaleOf(size_t op_index) const {
  for (const Segment& segment : segments_) {
    if (op_index < segment.end) {
      return segment.scale;
    }
  }
  return 1;
}

absl::StatusOr<std::vector<float>> CudaArm::Output() {
  if (step_->is_idle()) {
    return std::vector<float>{};
  }
  const auto count = static_cast<size_t>(step_->step.num_tokens * step_->model.hidden_size);
  std::vector<Bf16> hidden(count);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(hidden.data(), step_->tensors.at(step_->step.output)->data(),
                      count * sizeof(Bf16), cudaMemcpyDeviceToHost, stream().get()),
      "reading the hidden states");
  LASTFLOP_RETURN_IF_ERROR(Wait());
  std::vector<float> output(count);
  std::transform(hidden.begin(), hidden.end(), output.begin(),
                 [](Bf16 value) { return ToFloat(value); });
  return output;
}

absl::StatusOr<std::vector<int32_t>> CudaArm::ChosenExperts() {
  std::vector<int32_t> experts;
  LASTFLOP_ASSIGN_OR_RETURN(const auto by_layer, drawer_->ChosenExperts());
  for (const std::vector<int32_t>& of_layer : by_layer) {
    experts.insert(experts.end(), of_layer.begin(), of_layer.end());
  }
  return experts;
}

Op CudaArm::Priced(size_t index) const {
  Op op = *step_->ops[index].op;
  const int moe_index = step_->ops[index].moe_index;
  if (moe_index >= 0 && static_cast<size_t>(moe_index) < realised_.loads.size()) {
    op.work = WorkOf(op.shape, realised_.loads[static_cast<size_t>(moe_index)]);
  }
  return op;
}

double CudaArm::least_possible_us() const {
  double micros = 0;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    micros += ScaleOf(i) * DeclaredFloorMicros(Priced(i), options_.machine);
  }
  return micros;
}

Plan CudaArm::effective_plan() const {
  Plan plan = step_->plan;
  plan.moe.weights = ExpertStorage(step_->model, plan).format;
  if (plan.parallel.tensor > 1 && !step_->shard && !step_->layout.data_attention) {
    plan.collectives.all_reduce = step_->all_reduce;
  }
  return plan;
}

std::string CudaArm::effective_note() const {
  std::vector<std::string> notes;
  if (step_->shard && !step_->step.experts_only) {
    notes.push_back(absl::StrFormat(
        "one rank of %d; %.1f us of collectives are modelled from the machine's numbers (assumed)",
        step_->plan.num_ranks(), ModelledMicros()));
  }
  if (step_->step.moe_layer_scale > 1) {
    notes.push_back(absl::StrFormat("%d layers kept, each MoE layer stands for %.4g",
                                    step_->step.layers.size(), step_->step.moe_layer_scale));
  }
  if (pin_.has_value()) {
    size_t num_pinned_nodes = 0;
    bool has_graph = false;
    for (const Piece& piece : pieces_) {
      has_graph |= piece.is_graph;
      num_pinned_nodes += piece.graph.num_pinned_nodes();
    }
    notes.push_back(absl::StrFormat(
        "%s; the device took %.1f MB%s", pin_->note,
        static_cast<double>(pin_effective_bytes_) * 1e-6,
        has_graph ? absl::StrCat("; ", num_pinned_nodes, " kernels of the graph have a window")
                  : ""));
  }
  if (!step_->is_idle()) {
    notes.push_back("lastflop's kernels start while the one before them ends");
  }
  if (step_->plan.moe.activations == ActivationFormat::kFp8) {
    notes.push_back("each expert product is two kernels: its rows are rounded to fp8 first");
  }
  if (step_->plugin != nullptr) {
    notes.push_back(step_->plugin->Describe());
  }
  if (std::string note = PaddingNote(step_->model, step_->step); !note.empty()) {
    notes.push_back(std::move(note));
  }
  if (!HasDevicePairs(*step_)) {
    notes.push_back("the fused kernel makes its own pair lists: moe.permute launches nothing");
  }
  if (step_->plan.collectives.fuse_norm) {
    notes.push_back("all_reduce ops launch nothing: the norms after them reduce in one kernel");
  }
  if (step_->layout.data_attention && !step_->shard && !step_->is_idle()) {
    notes.push_back(step_->plan.collectives.all_to_all == AllToAllAlgorithm::kNccl
                        ? "tokens are exchanged by NCCL: every row goes to every rank"
                        : "tokens are exchanged over peer memory");
  }
  if (step_->layout.data_attention && step_->shard) {
    notes.push_back("the experts' input is random rows, routed as all ranks' tokens are");
  }
  if (parts_.context->peers == nullptr && !parts_.context->peers_status.ok() &&
      !step_->layout.data_attention &&
      step_->plan.collectives.all_reduce == AllReduceAlgorithm::kAuto) {
    notes.push_back(
        absl::StrCat("all-reduce by NCCL: ", std::string(parts_.context->peers_status.message())));
  }
  if (pieces_.size() > 1) {
    notes.push_back(absl::StrCat(std::count_if(pieces_.begin(), pieces_.end(),
                                               [](const Piece& piece) { return piece.is_graph; }),
                                 " graphs a step"));
  }
  if (!step_->is_idle()) {
    notes.push_back(evicts_ ? "cold: other data is read through the L2 between steps"
                            : "cold: a step reads more than twice the L2");
  }
  if (options_.measure.zeros) {
    notes.push_back("zero data");
  }
  return absl::StrJoin(notes, "; ");
}

double CudaArm::tokens_per_step() const { return TokensPerStep(step_->plan, step_->point); }

}  // namespace lastflop
