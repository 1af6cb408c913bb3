#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/plan.h"

namespace lastflop {

// A communicator of NCCL, the host's own library, found when first asked for. Calls enqueue on a
// stream and can be captured in a graph. Not thread-safe.
class Nccl {
 public:
  // A collective call. `broadcast` gives every rank what rank 0 passes to it (the unique id).
  // Its waits end when a rank is lost, after NCCL's own timeout at the latest. `tuning` is for this
  // communicator alone: NCCL_ALGO and NCCL_PROTO, which NCCL reads whenever it makes one, are set
  // meanwhile. Unimplemented for NVLink multicast where NCCL_NVLS_ENABLE=0 forbids it.
  using Broadcast = std::function<absl::StatusOr<std::string>(const std::string& bytes)>;
  static absl::StatusOr<std::unique_ptr<Nccl>> Create(int rank, int num_ranks,
                                                      const Broadcast& broadcast,
                                                      const NcclTuning& tuning = {});
  ~Nccl();

  // Sums `elements` bf16 values over ranks, in place.
  absl::Status AllReduce(void* data, int64_t elements, cudaStream_t stream);
  // `bytes` of every rank, in rank order, to all.
  absl::Status AllGather(const void* own, void* all, int64_t bytes, cudaStream_t stream);
  // What this rank and another send each other, or one of them; a rank may name itself.
  struct Exchanged {
    int peer = 0;
    const void* send = nullptr;
    int64_t send_bytes = 0;  // 0: nothing.
    void* receive = nullptr;
    int64_t receive_bytes = 0;
  };
  // All of it in one group, one launch. What two ranks name for each other must agree in order and
  // bytes.
  absl::Status Exchange(std::span<const Exchanged> parts, cudaStream_t stream);
  // Errors that a running collective met: a lost peer.
  absl::Status AsyncStatus();

  int version() const { return version_; }  // 22703 is 2.27.3.
  const std::string& library_path() const { return path_; }

 private:
  struct Api;
  Nccl(std::unique_ptr<Api> api, std::string path);
  std::unique_ptr<Api> api_;
  std::string path_;
  int version_ = 0;
  void* communicator_ = nullptr;
};

}  // namespace lastflop
