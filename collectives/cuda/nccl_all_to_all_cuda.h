#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "collectives/cuda/peer_all_to_all_cuda.h"
#include "gpu/nccl.h"

// All-to-all of tokens by NCCL's grouped send and receive. NCCL takes sizes from the host, which
// does not know the routing: every row goes to every rank, with the experts of all tokens, and
// every rank sends back a row for each of them. Results are those of the calls over peer memory
// (collectives/cuda/peer_all_to_all_cuda.h), but received_ids has the experts of all tokens and
// `received` all rows.
namespace lastflop {

absl::Status NcclDispatch(Nccl& nccl, int rank, const TokenSplit& split,
                          const DispatchTensors& tensors, cudaStream_t stream);

// Elements of `returned`: a row of each rank for each token of this one.
int64_t NcclReturnedElements(const TokenSplit& split, int rank);

absl::Status NcclCombine(Nccl& nccl, int rank, const TokenSplit& split,
                         const CombineTensors& tensors, __nv_bfloat16* returned,
                         cudaStream_t stream);

}  // namespace lastflop
