#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"
#include "collectives/cuda/token_split.h"

// All-to-all of tokens over peer memory, one launch a call: dispatch brings every token row to the
// ranks that own one of its experts, combine brings their sums back. What goes where is read from
// the routing on the device. The packets, regions and waiting are those of the all-reduces
// (collectives/cuda/peer_all_reduce_cuda.h), and calls of both kinds may follow each other.
//
// Where a received token lies is its place in the batch: rank r's token t is row
// first_token[r] + t of what its peers receive. Rows of tokens that have no expert here are not
// written, and their expert ids are -1; permutation, which passes over those, needs no count.
namespace lastflop {

// Device memory, 16-byte aligned. T are this rank's tokens, A all ranks'.
struct DispatchTensors {
  const __nv_bfloat16* rows = nullptr;  // [T, hidden_size]
  const int32_t* expert_ids = nullptr;  // [T, top_k], of the model; -1: slot not used.
  const float* weights = nullptr;       // [T, top_k]
  __nv_bfloat16* received = nullptr;    // [A, hidden_size]
  int32_t* received_ids = nullptr;      // [A, top_k]
  float* received_weights = nullptr;    // [A, top_k]
};
struct CombineTensors {
  const __nv_bfloat16* partial = nullptr;  // [A, hidden_size]: this rank's sums.
  const int32_t* received_ids = nullptr;   // Of the dispatch.
  const int32_t* expert_ids = nullptr;     // [T, top_k]
  const __nv_bfloat16* shared = nullptr;   // [T, hidden_size], or null.
  __nv_bfloat16* out = nullptr;            // [T, hidden_size]
};

// Most tokens of a rank that one call takes, by what a region holds. A longer exchange takes more.
int64_t DispatchMaxTokens(const TokenSplit& split, int64_t region_bytes);
int64_t CombineMaxTokens(const TokenSplit& split, int64_t region_bytes);

// Tokens [first, first + count) of every rank that has them; equal on all ranks, also on one that
// has none. `threads_per_block` is a multiple of 32 up to 1024, or 0: the launcher's choice.
absl::Status LaunchPeerDispatch(const PeerView& view, const TokenSplit& split,
                                const DispatchTensors& tensors, int64_t first, int64_t count,
                                int threads_per_block, cudaStream_t stream);

// out[t] = sum over the ranks that own an expert of t, in rank order, of their partial rows of t
// (+ shared[t]), in fp32, rounded once.
absl::Status LaunchPeerCombine(const PeerView& view, const TokenSplit& split,
                               const CombineTensors& tensors, int64_t first, int64_t count,
                               int threads_per_block, cudaStream_t stream);

// The same sum from rows that another transport has brought: returned[r, t] is rank r's partial row
// of t, [num_ranks, T, hidden_size]; of this rank itself `partial` is read.
absl::Status LaunchSumReturned(const TokenSplit& split, int rank, const CombineTensors& tensors,
                               const __nv_bfloat16* returned, cudaStream_t stream);

}  // namespace lastflop
