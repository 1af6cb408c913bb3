#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/device_buffer.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/arm.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cuda_arm.h"
#include "worker/cuda_step.h"
#include "worker/cuda_telemetry.h"

namespace lastflop {

// The CUDA backend of one child process: one rank, its GPU and its weights. Not thread-safe; arms
// are used by the thread that made the backend.
class CudaBackend final : public Backend {
 public:
  // FailedPrecondition without a device of that index, or with one that has no kernels.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const BackendOptions& options);

  absl::Status StartAttempt(const Plan& baseline, const Plan& variant, const Point& point,
                            Gang& gang) override;
  absl::StatusOr<std::unique_ptr<Arm>> Prepare(const Plan& plan, const Point& point,
                                               Gang& gang) override;
  std::map<std::string, std::string> Environment() override;
  std::string DataChecksum() override;

 private:
  explicit CudaBackend(const BackendOptions& options) : options_(options) {}

  absl::Status Open();
  absl::Status CheckPlan(const Plan& plan, const Point& point, const Gang& gang) const;
  absl::Status CheckFits(const Plan& plan, const Point& point) const;
  absl::Status Connect(const Plan& plan, Gang& gang);
  absl::Status ConnectNccl(const NcclTuning& tuning, Gang& gang);
  absl::Status ConnectPeers(const Plan& plan, Gang& gang);
  absl::Status ResolveCollectives(CudaStep& step);
  WeightData data() const { return {.seed = options_.data_seed, .zeros = options_.measure.zeros}; }
  CudaStepInputs InputsOf(const Plan& plan, const Point& point, int rank,
                          int64_t layers_kept) const;
  // What both arms need together.
  struct PairMemory {
    double shared_bytes = 0;  // In the store.
    double beside_bytes = 0;
  };
  // With so many layers.
  absl::StatusOr<PairMemory> MemoryOfPair(const Plan& baseline, const Plan& variant,
                                          const Point& point, int rank, int64_t layers_kept) const;
  // Of the communicator over peer memory that the plan connects, if it does.
  double PeerBytesOf(const Plan& plan) const;

  const BackendOptions options_;
  CudaContext context_;
  std::string device_name_;
  std::string uuid_;
  std::string architecture_;
  int compute_capability_ = 0;
  int64_t l2_bytes_ = 0;
  double byte_budget_ = 0;
  int64_t layers_kept_ = 0;  // Of the current attempt.
  std::unique_ptr<CudaBufferStore> store_;
  std::unique_ptr<CpuBufferStore> host_store_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CudaTelemetry> telemetry_;
  DeviceBuffer evictor_;
};

}  // namespace lastflop
