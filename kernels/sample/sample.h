#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"

// Sample: the greedy choice. Each rank finds the best of its own logits; the candidates of all
// ranks travel (an all-gather), not the logits, and every rank chooses among them.
//
// The largest logit wins, the lowest token id among equals. NaN never wins against a number.
namespace lastflop {

struct Candidate {
  float value = 0;
  int32_t token_id = 0;
};
static_assert(sizeof(Candidate) == 8);

// InvalidArgument for sizes out of range.
absl::Status ValidateSample(const SampleShape& shape);

// best[t] of logits[t, v], ids counted from vocab_begin. `logits` is [num_tokens, vocab_rows] fp32.
void BestCandidatesReference(const SampleShape& shape, std::span<const float> logits,
                             std::span<Candidate> best);
void BestCandidates(const SampleShape& shape, std::span<const float> logits,
                    std::span<Candidate> best, ThreadPool& pool);

// token_ids[t] from candidates [ranks, num_tokens].
void ChooseTokens(const SampleShape& shape, std::span<const Candidate> candidates,
                  std::span<int32_t> token_ids);

}  // namespace lastflop
