#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/cpu_collectives.h"
#include "gpu/stream.h"
#include "kernels/cpu/thread_pool.h"
#include "step/make_step.h"
#include "step/routing.h"
#include "worker/arm.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cuda_draw.h"
#include "worker/cuda_mirror.h"
#include "worker/cuda_pin.h"
#include "worker/cuda_step.h"
#include "worker/cuda_telemetry.h"
#include "worker/device_timeline.h"

namespace lastflop {

// Of the memory that is read to evict all else from the L2, with a sink behind it.
inline constexpr int64_t kEvictorSinkBytes = 256;
constexpr int64_t EvictorBytes(int64_t l2_bytes) { return 2 * l2_bytes + kEvictorSinkBytes; }

// What the arms of a child share beside the device.
struct CudaArmParts {
  CudaContext* context = nullptr;
  CudaTelemetry* telemetry = nullptr;
  DeviceBuffer* evictor = nullptr;  // EvictorBytes, made when first needed.
  int64_t l2_bytes = 0;
  CpuBufferStore* host_store = nullptr;
  ThreadPool* pool = nullptr;
};

// A plan on the CUDA backend. A timed step follows an untimed one of the same draw on the stream,
// so that neither launch latency of the first nor an idle clock is in it; its time is that of the
// device between two events. Weights are cold: other layers' lie between two uses of one, or
// other data is read through the L2 in between.
class CudaArm final : public Arm {
 public:
  // A collective call over the gang. `parts` and `gang` outlive the arm.
  static absl::StatusOr<std::unique_ptr<Arm>> Create(std::unique_ptr<CudaStep> step,
                                                     const BackendOptions& options, Gang& gang,
                                                     const CudaArmParts& parts);

  absl::Status SetDraw(int64_t draw) override;
  absl::StatusOr<StepTiming> Run() override;
  absl::StatusOr<CheckResult> Check(int64_t draw) override;
  absl::StatusOr<std::vector<float>> Output() override;
  absl::StatusOr<std::vector<int32_t>> ChosenExperts() override;
  absl::StatusOr<Breakdown> MeasureBreakdown(int num_samples) override;

  Plan effective_plan() const override;
  std::string effective_note() const override;
  double tokens_per_step() const override;
  double unique_experts() const override { return realised_.unique_experts; }
  ExpertLoad load() const override { return MeanLoad(realised_.loads); }
  double imbalance() const override { return realised_.imbalance; }
  double capture_us() const override { return capture_us_; }
  double least_possible_us() const override;

 private:
  // Consecutive ops of one scale.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    double scale = 1;            // How many of the model's layers each of its layers stands for.
    std::optional<Event> start;  // Where the scale is not 1.
    std::optional<Event> stop;
  };
  // Ops that are launched as one graph, or one by one.
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool is_graph = false;
    Graph graph;
  };

  CudaArm(std::unique_ptr<CudaStep> step, const BackendOptions& options, Gang& gang,
          const CudaArmParts& parts);

  absl::Status Prepare();
  absl::Status MakeSegments();
  void MakePieces();
  absl::Status CaptureOnce();
  absl::Status StartTogether();
  // The same, and whether every rank says yes.
  absl::StatusOr<bool> AllSay(bool yes);
  // Waits for the device. Of a step with a plugin the error says so.
  absl::Status Wait();
  absl::Status EnqueueOps(size_t begin, size_t end, bool in_graph);
  absl::Status EnqueueStep();
  absl::Status EvictIfNeeded();
  absl::StatusOr<double> TimedStepMicros();
  absl::StatusOr<std::vector<int>> CountSpans();
  absl::StatusOr<OpTimes> TracedStep(const std::vector<int>& spans_per_op, bool& has_begun);
  absl::StatusOr<OpTimes> EventTimedStep();
  absl::Status CheckReplay(const std::vector<float>& eager, CheckResult& result);
  double HostMicros() const;
  double ModelledMicros() const;
  double ScaleOf(size_t op_index) const;
  Op Priced(size_t index) const;
  Stream& stream() { return parts_.context->stream; }

  std::unique_ptr<CudaStep> step_;
  const BackendOptions options_;
  Gang& gang_;
  const CudaArmParts parts_;
  std::shared_ptr<const void> watch_;           // Of the gang, for collectives over peer memory.
  std::unique_ptr<CpuCommunicator> all_ranks_;  // Idle ones too: the common start.
  std::unique_ptr<CudaDrawer> drawer_;
  std::unique_ptr<CudaMirror> mirror_;
  std::vector<Segment> segments_;
  std::vector<Piece> pieces_;
  std::vector<double> modelled_us_;  // By op, unscaled.
  std::optional<Event> begin_;
  std::optional<Event> end_;
  std::optional<CudaPin> pin_;
  size_t pin_effective_bytes_ = 0;
  bool is_captured_ = false;
  bool evicts_ = false;
  double capture_us_ = 0;
  RealisedRouting realised_;
};

}  // namespace lastflop
