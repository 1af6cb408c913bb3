#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "step/shapes.h"

// All-reduce over memory that the GPUs of a gang see of each other (peer memory), one launch a
// call. bf16 values are summed in fp32 in rank order and rounded once: every rank gets the same
// bits.
//
// Data is the flag: values travel in packets of 16 bytes into the receiver's region, where a word
// that nothing can send says "not here yet". A receiver polls the packets themselves, sums, and
// empties what it has read. Regions alternate by the parity of the call: a sender writes one again
// only after a call in between, in which it heard from the receiver that the first was over.
// A grid fits on the device at once, so that every packet that is waited for is on its way.
namespace lastflop {

inline constexpr int kMaxPeerRanks = 8;
inline constexpr int64_t kPacketBytes = 16;
inline constexpr int64_t kArrivalBytes = kMaxPeerRanks * sizeof(uint32_t);

// What a rank's kernels keep between calls, in its own device memory. Zeroed at first.
struct alignas(16) PeerControl {
  uint32_t epoch = 0;   // Calls that are over. Read in one access with the next word.
  uint32_t failed = 0;  // Not 0: a call gave up, and later ones do nothing.
  uint32_t ticket = 0;  // Blocks of the running call that have read `epoch`.
  uint32_t unused = 0;
  // Of calls with PeerView::stamps, by one thread.
  uint64_t stamped_calls = 0;
  uint64_t wait_ns = 0;   // From this rank's arrival to the word of the last rank's, summed.
  uint64_t total_ns = 0;  // Of the calls, summed.
  uint64_t least_wait_ns = 0;
};

// Host memory that kernels see.
struct PeerReport {
  uint32_t abort = 0;   // The host: give up.
  uint32_t failed = 0;  // The device: 1 + the rank whose packets did not come.
  uint32_t epoch = 0;   // The call that failed.
};

// One rank's view of the regions of all. Plain data that kernels get by value.
struct PeerView {
  // Of rank r, both parities and kArrivalBytes, as mapped here.
  std::byte* regions[kMaxPeerRanks] = {};
  int64_t region_bytes = 0;  // Of one parity.
  PeerControl* control = nullptr;
  PeerReport* report = nullptr;
  uint64_t timeout_ns = 0;  // A packet that does not come within this ends the call.
  int rank = 0;
  int num_ranks = 1;
  bool stamps = false;  // Calls stamp when they began, when all ranks had, and when they ended.
};

// Most elements of one call, by what a region holds.
int64_t OneShotMaxElements(int64_t region_bytes, int num_ranks);
int64_t TwoShotMaxElements(int64_t region_bytes, int num_ranks);

// out = sum over ranks of `in`; in place where they are equal. `in` and `out` are 16-byte aligned
// device memory of `elements`, any number of them; at most OneShotMaxElements(). Every rank sends
// all it has to every other: one hop. Launches that follow each other overlap their starts.
// `threads_per_block` is a multiple of 32 up to 1024, or 0: the launcher's choice.
absl::Status LaunchOneShotAllReduce(const PeerView& view, const __nv_bfloat16* in,
                                    __nv_bfloat16* out, int64_t elements, int threads_per_block,
                                    cudaStream_t stream);

// The same in two hops: a rank sums its share of the packets and sends the sums. InvalidArgument
// for fewer packets than ranks, more elements than TwoShotMaxElements().
absl::Status LaunchTwoShotAllReduce(const PeerView& view, const __nv_bfloat16* in,
                                    __nv_bfloat16* out, int64_t elements, int threads_per_block,
                                    cudaStream_t stream);

// Unimplemented, with the reason, where the shape does not fit the fused kernel.
absl::Status CheckAllReduceNorm(const NormShape& shape, int64_t region_bytes, int num_ranks);

// one_shot, the residual and rms_norm (kernels/rms_norm/rms_norm.h) in one kernel:
//   sum[t, i] = sum over ranks of in[t, i], rounded to bf16
//   residual[t, i] = sum[t, i] (+ residual[t, i] when add_residual), rounded to bf16
//   out[t, i] = residual[t, i] / sqrt(mean over i of residual[t, i]^2 + epsilon) * gain[i]
// All are [rows, size] bf16, 16-byte aligned. `gain` is read before kernels that were launched
// earlier are over: none of them may write it. `cluster` blocks share a row (1, 2, 4 or 8; 0: the
// launcher's choice), more where a row needs them.
absl::Status LaunchAllReduceNorm(const PeerView& view, const NormShape& shape,
                                 const __nv_bfloat16* in, __nv_bfloat16* residual,
                                 const __nv_bfloat16* gain, __nv_bfloat16* out, int cluster,
                                 cudaStream_t stream);

}  // namespace lastflop
