#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "gpu/device_buffer.h"

namespace lastflop {

// Memory of every rank's GPU, mapped by all ranks of a gang on one host (CUDA's inter-process
// handles). The mapping of a rank that ended stays valid until this is destroyed.
class CudaPeerMemory {
 public:
  // A collective call: every rank passes the same size and has chosen its device. The memory is not
  // initialized. Unimplemented on every rank, with the reason, when a GPU cannot reach another one;
  // ResourceExhausted when one has no room.
  static absl::StatusOr<std::unique_ptr<CudaPeerMemory>> Create(Gang& gang, size_t bytes);
  ~CudaPeerMemory();
  CudaPeerMemory(const CudaPeerMemory&) = delete;
  CudaPeerMemory& operator=(const CudaPeerMemory&) = delete;

  // Rank r's memory, as this rank's GPU reaches it.
  std::byte* of_rank(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }

 private:
  CudaPeerMemory(DeviceBuffer own, int self) : own_(std::move(own)), self_(self) {}
  absl::Status Open(const Gang::SharedMemory& exchange);

  DeviceBuffer own_;
  const int self_;
  std::vector<std::byte*> of_rank_;
};

}  // namespace lastflop
