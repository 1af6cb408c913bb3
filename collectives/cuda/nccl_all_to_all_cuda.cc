#include "collectives/cuda/nccl_all_to_all_cuda.h"

#include <vector>

#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int64_t kBf16Bytes = 2;
constexpr int64_t kWordBytes = 4;  // fp32 and int32.

}  // namespace

absl::Status NcclDispatch(Nccl& nccl, int rank, const TokenSplit& split,
                          const DispatchTensors& tensors, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  const int64_t own = split.tokens_of(rank);
  std::vector<Nccl::Exchanged> parts;
  for (int peer = 0; peer < split.num_ranks; ++peer) {
    const int64_t first = split.first_token[peer];
    const int64_t theirs = split.tokens_of(peer);
    const int64_t row_bytes = split.hidden_size * kBf16Bytes;
    const int64_t word_bytes = split.top_k * kWordBytes;
    parts.push_back({.peer = peer,
                     .send = tensors.rows,
                     .send_bytes = own * row_bytes,
                     .receive = tensors.received + first * split.hidden_size,
                     .receive_bytes = theirs * row_bytes});
    parts.push_back({.peer = peer,
                     .send = tensors.expert_ids,
                     .send_bytes = own * word_bytes,
                     .receive = tensors.received_ids + first * split.top_k,
                     .receive_bytes = theirs * word_bytes});
    parts.push_back({.peer = peer,
                     .send = tensors.weights,
                     .send_bytes = own * word_bytes,
                     .receive = tensors.received_weights + first * split.top_k,
                     .receive_bytes = theirs * word_bytes});
  }
  return nccl.Exchange(parts, stream);
}

int64_t NcclReturnedElements(const TokenSplit& split, int rank) {
  return split.num_ranks * split.tokens_of(rank) * split.hidden_size;
}

absl::Status NcclCombine(Nccl& nccl, int rank, const TokenSplit& split,
                         const CombineTensors& tensors, __nv_bfloat16* returned,
                         cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  const int64_t own = split.tokens_of(rank) * split.hidden_size;
  std::vector<Nccl::Exchanged> parts;
  for (int peer = 0; peer < split.num_ranks; ++peer) {
    if (peer == rank) {
      continue;
    }
    const int64_t theirs = split.tokens_of(peer) * split.hidden_size;
    parts.push_back({.peer = peer,
                     .send = tensors.partial + split.first_token[peer] * split.hidden_size,
                     .send_bytes = theirs * kBf16Bytes,
                     .receive = returned + peer * own,
                     .receive_bytes = own * kBf16Bytes});
  }
  LASTFLOP_RETURN_IF_ERROR(nccl.Exchange(parts, stream));
  return LaunchSumReturned(split, rank, tensors, returned, stream);
}

}  // namespace lastflop
