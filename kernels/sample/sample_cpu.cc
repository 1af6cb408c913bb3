#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_builds.h"

namespace lastflop {
namespace {

// Logits of a task: 64 KiB, about 2 us of reading.
constexpr int64_t kTaskLogits = 16384;
// So many candidates fit a thread's scratch beside nothing else.
constexpr int64_t kMaxScratchTokens =
    static_cast<int64_t>(ThreadPool::kScratchBytes / sizeof(Candidate));

int64_t FirstMax(const float* in, int64_t count, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    return FirstMaxAvx2(in, count);
  }
#endif
  static_cast<void>(isa);
  return FirstMaxPortable(in, count);
}

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (std::isnan(a.value) != std::isnan(b.value)) {
    return std::isnan(b.value);
  }
  return a.value > b.value || (!(a.value < b.value) && a.token_id < b.token_id);
}

Candidate BestOf(const SampleShape& shape, const float* row, int64_t begin, int64_t end,
                 VectorIsa isa) {
  const int64_t winner = begin + FirstMax(row + begin, end - begin, isa);
  return {.value = row[winner], .token_id = static_cast<int32_t>(shape.vocab_begin + winner)};
}

}  // namespace

absl::Status ValidateSample(const SampleShape& shape) {
  if (shape.num_tokens < 0 || shape.vocab_rows < 1 || shape.vocab_begin < 0 || shape.ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sample: num_tokens=", shape.num_tokens, " vocab_rows=", shape.vocab_rows,
                     " vocab_begin=", shape.vocab_begin, " ranks=", shape.ranks));
  }
  return absl::OkStatus();
}

void BestCandidates(const SampleShape& shape, std::span<const float> logits,
                    std::span<Candidate> best, ThreadPool& pool) {
  const int64_t rows = shape.vocab_rows;
  if (shape.num_tokens >= 4 * pool.num_threads() || shape.num_tokens > kMaxScratchTokens) {
    pool.ParallelFor(shape.num_tokens, [&](int64_t t, int /*thread*/) {
      best[static_cast<size_t>(t)] = BestOf(shape, logits.data() + t * rows, 0, rows, pool.isa());
    });
    return;
  }
  // Few tokens: each row is cut over the threads, which keep their best of each.
  const int64_t parts = (rows + kTaskLogits - 1) / kTaskLogits;
  pool.RunOnAll([&](int thread) {
    auto* const own = reinterpret_cast<Candidate*>(pool.Scratch(thread));
    std::fill_n(own, shape.num_tokens, Candidate{.value = NAN, .token_id = -1});
    for (int64_t i = pool.NextTask(0); i < shape.num_tokens * parts; i = pool.NextTask(0)) {
      const int64_t t = i / parts;
      const int64_t begin = i % parts * kTaskLogits;
      const int64_t end = std::min(rows, begin + kTaskLogits);
      const Candidate found = BestOf(shape, logits.data() + t * rows, begin, end, pool.isa());
      if (own[t].token_id < 0 || IsBetter(found, own[t])) {
        own[t] = found;
      }
    }
  });
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    Candidate winner = {.value = NAN, .token_id = -1};
    for (int thread = 0; thread < pool.num_threads(); ++thread) {
      const Candidate& other = reinterpret_cast<const Candidate*>(pool.Scratch(thread))[t];
      if (other.token_id >= 0 && (winner.token_id < 0 || IsBetter(other, winner))) {
        winner = other;
      }
    }
    best[static_cast<size_t>(t)] = winner;
  }
}

void ChooseTokens(const SampleShape& shape, std::span<const Candidate> candidates,
                  std::span<int32_t> token_ids) {
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    Candidate winner = candidates[static_cast<size_t>(t)];
    for (int64_t r = 1; r < shape.ranks; ++r) {
      const Candidate& other = candidates[static_cast<size_t>(r * shape.num_tokens + t)];
      winner = IsBetter(other, winner) ? other : winner;
    }
    token_ids[static_cast<size_t>(t)] = winner.token_id;
  }
}

int64_t FirstMaxPortable(const float* in, int64_t count) {
  int64_t winner = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (in[i] > in[winner] || (in[winner] != in[winner] && in[i] == in[i])) {
      winner = i;
    }
  }
  return winner;
}

}  // namespace lastflop
