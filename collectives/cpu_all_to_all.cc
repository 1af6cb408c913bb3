#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/cpu_collectives.h"
#include "collectives/reduce_bf16.h"
#include "common/status_macros.h"

namespace lastflop {

absl::Status CpuCommunicator::CheckDispatch(const AllToAllShape& shape, const TokensToSend& tokens,
                                            const TokensReceived& received) const {
  LASTFLOP_RETURN_IF_ERROR(CheckUsable());
  if (shape.payload != ActivationFormat::kBf16) {
    return absl::UnimplementedError(absl::StrCat("collectives.payload=", ToWord(shape.payload),
                                                 ": the CPU backend's dispatch sends bf16 only"));
  }
  if (shape.algorithm != AllToAllAlgorithm::kP2p) {
    return absl::UnimplementedError(
        "collectives.all_to_all=nccl: the CPU backend has no NCCL; it runs p2p");
  }
  if (is_dispatched_) {
    return absl::FailedPreconditionError("dispatch: the tokens of the last one are not combined");
  }
  if (shape.ranks != num_ranks() || shape.num_experts <= 0 ||
      shape.num_experts % num_ranks() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dispatch of ", shape.num_experts, " experts over ", shape.ranks,
                     " ranks in a "
                     "group of ",
                     num_ranks(), ": experts divide over the group's ranks"));
  }
  if (shape.num_tokens > options_.max_tokens || shape.hidden_size != options_.hidden_size ||
      shape.top_k != options_.top_k) {
    return absl::InvalidArgumentError(
        absl::StrCat("dispatch of ", shape.num_tokens, " tokens of ", shape.hidden_size, ", top ",
                     shape.top_k, ": the communicator was made for at most ", options_.max_tokens,
                     " of ", options_.hidden_size, ", top ", options_.top_k));
  }
  const auto num_tokens = static_cast<size_t>(shape.num_tokens);
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  const auto top_k = static_cast<size_t>(shape.top_k);
  const size_t most = options_.ranks.size() * static_cast<size_t>(options_.max_tokens);
  if (tokens.rows.size() != num_tokens * hidden || tokens.expert_ids.size() != num_tokens * top_k ||
      tokens.weights.size() != num_tokens * top_k || received.rows.size() < most * hidden ||
      received.expert_ids.size() < most * top_k || received.weights.size() < most * top_k) {
    return absl::InvalidArgumentError("dispatch: a buffer does not fit the shape");
  }
  for (const int32_t id : tokens.expert_ids) {
    if (id < 0 || id >= shape.num_experts) {
      return absl::InvalidArgumentError(
          absl::StrCat("dispatch to expert ", id, ": experts are 0 to ", shape.num_experts - 1));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CollectiveTiming> CpuCommunicator::Dispatch(const AllToAllShape& shape,
                                                           const TokensToSend& tokens,
                                                           const TokensReceived& received,
                                                           int64_t* num_received) {
  LASTFLOP_RETURN_IF_ERROR(CheckDispatch(shape, tokens, received));
  const auto start = Clock::now();
  dispatched_ = shape;
  dispatched_ids_.assign(tokens.expert_ids.begin(), tokens.expert_ids.end());
  // One buffer is enough: all ranks have met at the Combine in between, so none still reads it.
  std::copy(tokens.rows.begin(), tokens.rows.end(), Part<uint16_t>(self_, layout_.rows));
  std::copy(tokens.expert_ids.begin(), tokens.expert_ids.end(),
            Part<int32_t>(self_, layout_.expert_ids));
  std::copy(tokens.weights.begin(), tokens.weights.end(), Part<float>(self_, layout_.weights));
  *Part<int64_t>(self_, layout_.num_sent) = shape.num_tokens;
  CollectiveTiming timing;
  LASTFLOP_RETURN_IF_ERROR(
      Meet({.count = shape.num_experts, .detail = 0, .call = Call::kDispatch}, &timing.wait_us));
  int64_t* const offsets = Part<int64_t>(self_, layout_.offsets);
  offsets[0] = 0;
  for (int r = 0; r < num_ranks(); ++r) {
    offsets[r + 1] = offsets[r] + ReceiveFrom(r, received, offsets[r]);
  }
  num_received_ = offsets[num_ranks()];
  *num_received = num_received_;
  is_dispatched_ = true;
  timing.transfer_us = MicrosSince(start) - timing.wait_us;
  return timing;
}

int64_t CpuCommunicator::ReceiveFrom(int rank, const TokensReceived& received, int64_t at) const {
  const int64_t hidden = dispatched_.hidden_size;
  const int64_t top_k = dispatched_.top_k;
  const uint16_t* const rows = Part<uint16_t>(rank, layout_.rows);
  const int32_t* const expert_ids = Part<int32_t>(rank, layout_.expert_ids);
  const float* const weights = Part<float>(rank, layout_.weights);
  const int64_t num_sent = *Part<int64_t>(rank, layout_.num_sent);
  int64_t count = 0;
  for (int64_t t = 0; t < num_sent; ++t) {
    if (HasExpertOn(expert_ids + t * top_k, self_)) {
      const int64_t to = at + count++;
      std::copy_n(rows + t * hidden, hidden, received.rows.data() + to * hidden);
      std::copy_n(expert_ids + t * top_k, top_k, received.expert_ids.data() + to * top_k);
      std::copy_n(weights + t * top_k, top_k, received.weights.data() + to * top_k);
    }
  }
  return count;
}

bool CpuCommunicator::HasExpertOn(const int32_t* expert_ids, int rank) const {
  const int64_t per_rank = dispatched_.num_experts / num_ranks();
  return std::any_of(expert_ids, expert_ids + dispatched_.top_k,
                     [&](int32_t id) { return id >= 0 && id / per_rank == rank; });
}

std::vector<std::vector<int64_t>> CpuCommunicator::ReturnRows() const {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(num_ranks()));
  for (int r = 0; r < num_ranks(); ++r) {
    int64_t next = Part<int64_t>(r, layout_.offsets)[self_];
    for (int64_t t = 0; t < dispatched_.num_tokens; ++t) {
      const bool went = HasExpertOn(dispatched_ids_.data() + t * dispatched_.top_k, r);
      rows[static_cast<size_t>(r)].push_back(went ? next++ : -1);
    }
  }
  return rows;
}

absl::StatusOr<CollectiveTiming> CpuCommunicator::Combine(std::span<const uint16_t> partial,
                                                          std::span<const uint16_t> shared,
                                                          std::span<uint16_t> out) {
  LASTFLOP_RETURN_IF_ERROR(CheckUsable());
  const int64_t hidden = dispatched_.hidden_size;
  const auto out_size = static_cast<size_t>(dispatched_.num_tokens * hidden);
  if (!is_dispatched_) {
    return absl::FailedPreconditionError("combine without a dispatch before it");
  }
  if (partial.size() != static_cast<size_t>(num_received_ * hidden) || out.size() != out_size ||
      (!shared.empty() && shared.size() != out_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("combine: ", partial.size(), " values for ", num_received_, " received and ",
                     out.size(), " for ", dispatched_.num_tokens, " own tokens of ", hidden));
  }
  const auto start = Clock::now();
  std::copy(partial.begin(), partial.end(), Part<uint16_t>(self_, layout_.returns));
  CollectiveTiming timing;
  LASTFLOP_RETURN_IF_ERROR(Meet(
      {.count = dispatched_.num_experts, .detail = 0, .call = Call::kCombine}, &timing.wait_us));
  const std::vector<std::vector<int64_t>> return_rows = ReturnRows();
  std::vector<float> sum(static_cast<size_t>(hidden));
  for (int64_t t = 0; t < dispatched_.num_tokens; ++t) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int r = 0; r < num_ranks(); ++r) {
      const int64_t row = return_rows[static_cast<size_t>(r)][static_cast<size_t>(t)];
      if (row >= 0) {
        AddPartial(sum.data(), Part<uint16_t>(r, layout_.returns) + row * hidden, hidden,
                   sum.data());
      }
    }
    if (!shared.empty()) {
      AddPartial(sum.data(), shared.data() + t * hidden, hidden, sum.data());
    }
    RoundToBf16Row(sum.data(), hidden, out.data() + t * hidden);
  }
  is_dispatched_ = false;
  timing.transfer_us = MicrosSince(start) - timing.wait_us;
  return timing;
}

}  // namespace lastflop
