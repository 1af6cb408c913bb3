#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/cuda/cuda_peer_memory.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"
#include "collectives/cuda/peer_all_to_all_cuda.h"
#include "collectives/gang.h"
#include "common/words.h"
#include "step/shapes.h"

namespace lastflop {

// All-reduce and all-to-all over peer memory for all ranks of a gang, a GPU each. Calls enqueue on
// a stream and can be captured in a graph; they are collective, in the same order on every rank,
// one at a time.
//
// Where a rank does not come, the others' call ends after the timeout, at once when a watched gang
// knows that the rank ended; Check() then names it. After that the communicator only fails: nothing
// of the device is lost, and a new one works. One thread a rank.
class CudaPeerCommunicator {
 public:
  struct Options {
    // Of one parity, a rank: the most that others send it in a call. Longer messages take more
    // launches.
    int64_t region_bytes = int64_t{64} << 20;
    std::chrono::milliseconds timeout{10'000};
  };

  // Device memory of a rank's communicator.
  static int64_t MemoryBytes(const Options& options);

  // A collective call; the device is chosen before.
  // InvalidArgument for one rank or more than kMaxPeerRanks; Unimplemented, with the reason, where
  // GPUs do not reach each other.
  static absl::StatusOr<std::unique_ptr<CudaPeerCommunicator>> Create(Gang& gang,
                                                                      const Options& options);
  ~CudaPeerCommunicator();

  // Looks after `gang`, until the last copy of the result is gone: calls end soon after it has lost
  // a rank. One gang at a time; it outlives the result.
  std::shared_ptr<const void> Watch(Gang& gang);

  // data = sum over ranks of data, in place: bf16, summed in fp32 in rank order, the same bits on
  // every rank. 16-byte aligned, any number of elements. `algorithm` is one_shot or two_shot.
  absl::Status AllReduce(__nv_bfloat16* data, int64_t elements, AllReduceAlgorithm algorithm,
                         cudaStream_t stream, int threads_per_block = 0);

  // What `algorithm` runs as: two_shot needs a packet of 8 elements a rank, else it is one_shot.
  AllReduceAlgorithm RunsAs(AllReduceAlgorithm algorithm, int64_t elements) const;

  // LaunchAllReduceNorm() of this gang.
  absl::Status CheckNorm(const NormShape& shape) const;
  absl::Status AllReduceNorm(const NormShape& shape, const __nv_bfloat16* in,
                             __nv_bfloat16* residual, const __nv_bfloat16* gain, __nv_bfloat16* out,
                             cudaStream_t stream, int cluster = 0);

  // LaunchPeerDispatch() and LaunchPeerCombine() of all tokens, in as many launches as the regions
  // need. InvalidArgument where not even one token fits.
  absl::Status Dispatch(const TokenSplit& split, const DispatchTensors& tensors,
                        cudaStream_t stream, int threads_per_block = 0);
  absl::Status Combine(const TokenSplit& split, const CombineTensors& tensors, cudaStream_t stream,
                       int threads_per_block = 0);

  // After the work has been waited for: Aborted or DeadlineExceeded when a call failed, naming the
  // rank that did not come.
  absl::Status Check() const;

  // Of the calls enqueued while stamping is on (off at first), since the last reset. Waiting is
  // from this rank's arrival until it hears from the last rank, less `hop_us`: what that takes when
  // all arrive together.
  struct Stamps {
    int64_t calls = 0;
    double wait_us = 0;      // Summed over calls.
    double transfer_us = 0;  // The rest of the calls, summed.
    // Of the calls' time, waiting: 0 without calls.
    double share() const {
      return wait_us + transfer_us > 0 ? wait_us / (wait_us + transfer_us) : 0;
    }
  };
  // At the same call on all ranks: a rank that stamps waits for the others' words.
  void SetStamping(bool on) { view_.stamps = on; }
  absl::Status ResetStamps(cudaStream_t stream);
  absl::StatusOr<Stamps> ReadStamps(cudaStream_t stream) const;
  double hop_us() const { return hop_us_; }

  int num_ranks() const { return view_.num_ranks; }

 private:
  struct FreeHost {
    void operator()(PeerReport* report) const { cudaFreeHost(report); }
  };

  explicit CudaPeerCommunicator(const Options& options) : options_(options) {}
  absl::Status Open(Gang& gang);
  absl::Status MeasureHop();
  void LookAfterGang();

  const Options options_;
  std::unique_ptr<CudaPeerMemory> memory_;
  DeviceBuffer control_;
  std::unique_ptr<PeerReport, FreeHost> report_;
  PeerView view_;
  double hop_us_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;  // Guarded by mutex_, as the next three.
  Gang* gang_ = nullptr;
  std::weak_ptr<const void> watch_;
  absl::Status lost_;    // Of the gang that lost a rank.
  std::thread watcher_;  // Tells kernels when the gang has lost a rank.
};

}  // namespace lastflop
