#include <limits>
#include <utility>

#include "common/status_macros.h"
#include "kernels/sample/sample.h"
#include "worker/cpu_op_checker_inl.h"

namespace lastflop {
namespace {

// All ranks' `own`, by rank; every rank passes as many.
template <typename T>
absl::StatusOr<std::vector<T>> Gather(CpuCommunicator& ranks, const std::vector<T>& own) {
  std::vector<T> all(own.size() * static_cast<size_t>(ranks.num_ranks()));
  LASTFLOP_RETURN_IF_ERROR(
      ranks.AllGather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)))
          .status());
  return all;
}

// What every rank of an exchange has: its tokens' experts, in rows of the most loaded rank's count.
struct AllTokens {
  int64_t max_tokens = 0;
  int64_t top_k = 0;
  int64_t experts_per_rank = 0;
  std::vector<int32_t> expert_ids;  // [ranks, max_tokens, top_k], -1 where a rank has fewer.

  bool Goes(int64_t from, int64_t token, int64_t to) const {
    const int32_t* ids = expert_ids.data() + (from * max_tokens + token) * top_k;
    return std::any_of(ids, ids + top_k,
                       [&](int32_t id) { return id >= 0 && id / experts_per_rank == to; });
  }
};

absl::StatusOr<AllTokens> GatherTokens(CpuStep& step, const AllToAllShape& s,
                                       const CpuRouting& routing) {
  AllTokens tokens;
  tokens.max_tokens = SequencesOfReplica(step.point.batch, step.layout.num_replicas, 0) *
                      QueryTokens(step.plan, step.point);
  tokens.top_k = s.top_k;
  tokens.experts_per_rank = s.num_experts / s.ranks;
  std::vector<int32_t> own(static_cast<size_t>(tokens.max_tokens * s.top_k), -1);
  std::copy(routing.expert_ids.begin(), routing.expert_ids.end(), own.begin());
  LASTFLOP_ASSIGN_OR_RETURN(tokens.expert_ids, Gather(*step.expert_ranks, own));
  return tokens;
}

OpCheck Exact(bool equal, const char* what) {
  return {
      .error = equal ? 0 : std::numeric_limits<double>::infinity(), .tolerance = 0, .what = what};
}

}  // namespace

CpuOpChecker::Result CpuOpChecker::operator()(const AllReduceShape& s) {
  const int64_t hidden = step_.model.hidden_size;
  const std::vector<int64_t> rows = SampleIndices(s.elements / hidden, kMostRows, seed_);
  const auto out = Out<Bf16>(s.elements);
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<Bf16> before,
                            Gather(*step_.tensor_ranks, GatherRows(out, rows, hidden, hidden)));
  LASTFLOP_RETURN_IF_ERROR(Run());
  std::vector<float> reference(before.size() / static_cast<size_t>(s.ranks), 0.0F);
  for (size_t i = 0; i < before.size(); ++i) {
    reference[i % reference.size()] += ToFloat(before[i]);
  }
  return Compare(out, rows, hidden, {}, reference, WorstTolerance(1, s.ranks));
}

CpuOpChecker::Result CpuOpChecker::operator()(const AllToAllShape& s) {
  return s.combine ? CheckCombine(s) : CheckDispatch(s);
}

CpuOpChecker::Result CpuOpChecker::CheckDispatch(const AllToAllShape& s) {
  const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
  LASTFLOP_ASSIGN_OR_RETURN(const AllTokens tokens, GatherTokens(step_, s, routing));
  std::vector<Bf16> own(static_cast<size_t>(tokens.max_tokens * s.hidden_size));
  const auto in = In<Bf16>(s.num_tokens * s.hidden_size);
  std::copy(in.begin(), in.end(), own.begin());
  std::vector<float> own_weights(static_cast<size_t>(tokens.max_tokens * s.top_k));
  std::copy(routing.weights.begin(), routing.weights.end(), own_weights.begin());
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<Bf16> rows, Gather(*step_.expert_ranks, own));
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> weights,
                            Gather(*step_.expert_ranks, own_weights));
  step_.num_received = -1;
  LASTFLOP_RETURN_IF_ERROR(Run());
  auto& out_buffer = step_.tensors.at(op_.out);
  const auto out = out_buffer.As<Bf16>(out_buffer.bytes() / sizeof(Bf16));
  int64_t at = 0;
  bool equal = true;
  for (int64_t token = 0; token < s.ranks * tokens.max_tokens; ++token) {
    if (!tokens.Goes(token / tokens.max_tokens, token % tokens.max_tokens,
                     step_.layout.expert_group)) {
      continue;
    }
    equal =
        equal && at < step_.num_received &&
        std::equal(rows.begin() + token * s.hidden_size, rows.begin() + (token + 1) * s.hidden_size,
                   out.begin() + at * s.hidden_size) &&
        std::equal(weights.begin() + token * s.top_k, weights.begin() + (token + 1) * s.top_k,
                   step_.received_weights.begin() + at * s.top_k) &&
        std::equal(tokens.expert_ids.begin() + token * s.top_k,
                   tokens.expert_ids.begin() + (token + 1) * s.top_k,
                   step_.received_ids.begin() + at * s.top_k);
    ++at;
  }
  return Exact(equal && at == step_.num_received, "tokens received");
}

CpuOpChecker::Result CpuOpChecker::CheckCombine(const AllToAllShape& s) {
  const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
  LASTFLOP_ASSIGN_OR_RETURN(const AllTokens tokens, GatherTokens(step_, s, routing));
  const int64_t most_received = tokens.max_tokens * s.ranks;
  std::vector<Bf16> own(static_cast<size_t>(most_received * s.hidden_size));
  const auto in = In<Bf16>(step_.num_received * s.hidden_size);
  std::copy(in.begin(), in.end(), own.begin());
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<Bf16> sums, Gather(*step_.expert_ranks, own));
  std::vector<float> reference(static_cast<size_t>(s.num_tokens * s.hidden_size), 0.0F);
  if (op_.in2 != Tensor::kNone) {
    const auto shared = step_.As<Bf16>(op_.in2, s.num_tokens * s.hidden_size);
    std::transform(shared.begin(), shared.end(), reference.begin(),
                   [](Bf16 value) { return ToFloat(value); });
  }
  const auto out = Out<Bf16>(s.num_tokens * s.hidden_size);
  const std::vector<int64_t> rows = SampleIndices(s.num_tokens, s.num_tokens, seed_);
  Poison(out, rows, s.hidden_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const int64_t self = step_.layout.expert_group;
  for (int64_t rank = 0; rank < s.ranks; ++rank) {
    int64_t at = 0;  // Rank `rank` received tokens by sender, in order.
    for (int64_t from = 0; from <= self; ++from) {
      for (int64_t token = 0; token < tokens.max_tokens; ++token) {
        if (!tokens.Goes(from, token, rank)) {
          continue;
        }
        for (int64_t h = 0; h < s.hidden_size && from == self; ++h) {
          reference[static_cast<size_t>(token * s.hidden_size + h)] +=
              ToFloat(sums[static_cast<size_t>((rank * most_received + at) * s.hidden_size + h)]);
        }
        ++at;
      }
    }
  }
  return Compare(out, rows, s.hidden_size, {}, reference, WorstTolerance(1, s.ranks + 1));
}

// The sender says by another way what it hands over.
CpuOpChecker::Result CpuOpChecker::operator()(const StageTransferShape& s) {
  const StageMessage message = MessageOf(step_, op_, s);
  if (!s.receive) {
    LASTFLOP_RETURN_IF_ERROR(step_.stage_witness->Send(message.first, message.second).status());
    LASTFLOP_RETURN_IF_ERROR(Run());
    return Exact(true, "");
  }
  std::vector<uint16_t> first(message.first.size());
  std::vector<uint16_t> second(message.second.size());
  constexpr uint16_t kPoison = 0xFFFF;
  std::fill(message.first.begin(), message.first.end(), kPoison);
  std::fill(message.second.begin(), message.second.end(), kPoison);
  LASTFLOP_RETURN_IF_ERROR(Run());
  LASTFLOP_RETURN_IF_ERROR(step_.stage_witness->Receive(first, second).status());
  return Exact(std::equal(first.begin(), first.end(), message.first.begin()) &&
                   std::equal(second.begin(), second.end(), message.second.begin()),
               "values handed over");
}

CpuOpChecker::Result CpuOpChecker::operator()(const SampleShape& s) {
  std::fill(step_.sampled.begin(), step_.sampled.end(), -1);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const std::vector<int64_t> rows = SampleIndices(s.num_tokens, 4, seed_);
  SampleShape sampled = s;
  sampled.num_tokens = static_cast<int64_t>(rows.size());
  std::vector<Candidate> best(rows.size());
  BestCandidatesReference(
      sampled, GatherRows(In<float>(s.num_tokens * s.vocab_rows), rows, s.vocab_rows, s.vocab_rows),
      best);
  if (s.ranks > 1) {
    LASTFLOP_ASSIGN_OR_RETURN(best, Gather(*step_.tensor_ranks, best));
  }
  std::vector<int32_t> reference(rows.size());
  ChooseTokens(sampled, best, reference);
  return Exact(GatherRows(std::span(step_.sampled), rows, 1, 1) == reference, "token ids");
}

}  // namespace lastflop
