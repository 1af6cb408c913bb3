#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cpu_check_op.h"
#include "worker/cpu_step.h"
#include "worker/cuda_step.h"

namespace lastflop {

// The host's copy of a device step, for its checks: the CPU backend's checks look at it, while its
// ops run on the device. References compute with the true values of the weights, so that the
// device's packed ones are checked as well.
class CudaMirror {
 public:
  // A collective call over the gang. All arguments outlive the mirror.
  static absl::StatusOr<std::unique_ptr<CudaMirror>> Create(const CudaStepInputs& inputs,
                                                            CudaStep& device_step,
                                                            CudaContext& context, Gang& gang,
                                                            CpuBufferStore& store,
                                                            ThreadPool& pool);

  // Poisons the output of op `index` on the device, runs it there and compares it with its plain
  // reference, as CheckCpuOp() does; `sample_seed` is equal on all ranks.
  absl::StatusOr<OpCheck> Check(size_t index, uint64_t sample_seed);

  // The device's activations have changed by other ways than Check().
  void Forget() { fresh_.clear(); }

 private:
  CudaMirror(CudaStep& device_step, CudaContext& context)
      : device_(device_step), context_(context) {}

  absl::Status Load(const CudaStepInputs& inputs, CpuBufferStore& store, ThreadPool& pool);
  absl::Status LoadOp(const CudaStepInputs& inputs, size_t index, CpuBufferStore& store,
                      ThreadPool& pool);
  // Everything that the op reads or writes, but for weights and context.
  absl::Status Download(size_t index);
  absl::Status Upload(size_t index);
  absl::Status CopyTensor(Tensor tensor, bool to_device);
  absl::Status CopyPairs(bool to_device);
  absl::Status CopyRouting(int moe_index, bool to_device);
  // Data attention: the device keeps a received token in the row of its place in the batch, the
  // host one after the other.
  // worker/cuda_mirror_received.cc
  absl::Status FetchReceived(int moe_index);
  absl::Status FetchReceivedRows(Tensor tensor);
  absl::Status FetchReceivedPairs();
  // Padded experts: the host keeps their pairs one after the other.
  absl::Status FetchPaddedRows(Tensor tensor);
  absl::Status RunOnDevice(CpuOp& op);
  absl::Status FetchCache(size_t index, std::span<const int64_t> sequences);
  absl::Status SendNewPositions(size_t index);
  absl::Status ReadCopy(size_t index, int64_t matrix, int64_t row, std::span<float> out);
  absl::Status Copy(void* host, void* device, size_t bytes, bool to_device);

  CudaStep& device_;
  CudaContext& context_;
  CpuStep host_;
  std::set<Tensor> fresh_;               // Activations that are here as they are on the device.
  std::vector<int32_t> received_rows_;   // On the device, of the tokens that are here.
  std::optional<std::string> trespass_;  // Of the plugin op that is checked.
};

}  // namespace lastflop
