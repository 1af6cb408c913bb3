#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status_macros.h"
#include "worker/cuda_mirror.h"

// CudaMirror under data attention: what a rank received.
namespace lastflop {

// Who came: the tokens with an expert of this rank, in order of the batch.
absl::Status CudaMirror::FetchReceived(int moe_index) {
  const CudaRouting& routing = device_.expert_routing(moe_index);
  const auto top_k = static_cast<size_t>(device_.model.top_k);
  const auto num_tokens = static_cast<size_t>(device_.num_expert_tokens());
  std::vector<int32_t> ids(num_tokens * top_k);
  std::vector<float> weights(ids.size());
  LASTFLOP_RETURN_IF_ERROR(
      Copy(ids.data(), routing.expert_ids, ids.size() * sizeof(int32_t), false));
  LASTFLOP_RETURN_IF_ERROR(
      Copy(weights.data(), routing.weights, weights.size() * sizeof(float), false));
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  const Layout& layout = device_.layout;
  received_rows_.clear();
  for (size_t token = 0; token < num_tokens; ++token) {
    const int32_t* const of_token = ids.data() + token * top_k;
    const bool is_here = std::any_of(of_token, of_token + top_k, [&](int32_t id) {
      return id >= layout.first_expert && id < layout.first_expert + layout.num_local_experts;
    });
    if (is_here) {
      const size_t to = received_rows_.size() * top_k;
      std::copy_n(of_token, top_k, host_.received_ids.data() + to);
      std::copy_n(weights.data() + token * top_k, top_k, host_.received_weights.data() + to);
      received_rows_.push_back(static_cast<int32_t>(token));
    }
  }
  host_.num_received = static_cast<int64_t>(received_rows_.size());
  return absl::OkStatus();
}

absl::Status CudaMirror::FetchReceivedRows(Tensor tensor) {
  const DeviceBuffer& from = *device_.tensors.at(tensor);
  std::vector<std::byte> all(from.bytes());
  LASTFLOP_RETURN_IF_ERROR(Copy(all.data(), from.data(), all.size(), false));
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  const auto row_bytes = static_cast<size_t>(device_.model.hidden_size) * sizeof(Bf16);
  std::byte* to = host_.tensors.at(tensor).data();
  for (const int32_t row : received_rows_) {
    std::copy_n(all.data() + static_cast<size_t>(row) * row_bytes, row_bytes, to);
    to += row_bytes;
  }
  return absl::OkStatus();
}

absl::Status CudaMirror::FetchReceivedPairs() {
  const PairList list = host_.pairs->list();
  std::vector<int32_t> token(list.token.size());
  std::vector<int32_t> pair_of(list.pair_of.size());
  const auto copy = [&](auto&& values, const void* device) {
    return Copy(values.data(), const_cast<void*>(device), values.size() * sizeof(values[0]), false);
  };
  LASTFLOP_RETURN_IF_ERROR(copy(list.offsets, device_.pairs.offsets));
  LASTFLOP_RETURN_IF_ERROR(copy(list.weight, device_.pairs.weight));
  LASTFLOP_RETURN_IF_ERROR(copy(token, device_.pairs.token));
  LASTFLOP_RETURN_IF_ERROR(copy(pair_of, device_.pairs.pair_of));
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  std::vector<int32_t> place_of(static_cast<size_t>(device_.num_expert_tokens()), -1);
  for (size_t i = 0; i < received_rows_.size(); ++i) {
    place_of[static_cast<size_t>(received_rows_[i])] = static_cast<int32_t>(i);
  }
  for (size_t pair = 0; pair < token.size(); ++pair) {  // Past the last pair they are anything.
    const auto row = static_cast<size_t>(token[pair]);
    list.token[pair] = row < place_of.size() ? place_of[row] : -1;
  }
  const auto top_k = static_cast<size_t>(device_.model.top_k);
  for (size_t i = 0; i < received_rows_.size(); ++i) {
    std::copy_n(pair_of.data() + static_cast<size_t>(received_rows_[i]) * top_k, top_k,
                list.pair_of.data() + i * top_k);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
