#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "kernels/cpu/weights_random_builds.h"
#include "kernels/embedding/embedding.h"

namespace lastflop {

absl::Status ValidateEmbedding(const EmbeddingShape& shape) {
  if (shape.num_tokens < 0 || shape.hidden_size < 1 || shape.vocab_rows < 1 ||
      shape.vocab_begin < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedding: num_tokens=", shape.num_tokens, " hidden_size=", shape.hidden_size,
                     " vocab_rows=", shape.vocab_rows, " vocab_begin=", shape.vocab_begin));
  }
  return absl::OkStatus();
}

void Embedding(const EmbeddingShape& shape, std::span<const int32_t> token_ids,
               std::span<const Bf16> table, std::span<Bf16> out, ThreadPool& pool) {
  const int64_t hidden = shape.hidden_size;
  pool.ParallelFor(shape.num_tokens, [&](int64_t t, int /*thread*/) {
    const int64_t row = token_ids[static_cast<size_t>(t)] - shape.vocab_begin;
    Bf16* const to = out.data() + t * hidden;
    if (row >= 0 && row < shape.vocab_rows) {
      std::copy_n(table.data() + row * hidden, hidden, to);
    } else {
      std::fill_n(to, hidden, Bf16{});
    }
  });
}

void FillRandomRows(const WeightSlice& slice, std::span<Bf16> table, ThreadPool& pool) {
  const auto cols = static_cast<size_t>(slice.cols_full);
  const auto first = static_cast<size_t>(slice.part_row_begin.front()) * cols;
  // Whole multiples of four weights, which share a random draw.
  constexpr size_t kTaskWeights = 16384;
  const size_t num_tasks = (table.size() + kTaskWeights - 1) / kTaskWeights;
  pool.ParallelFor(static_cast<int64_t>(num_tasks), [&](int64_t task, int /*thread*/) {
    const size_t begin = static_cast<size_t>(task) * kTaskWeights;
    const size_t end = std::min(table.size(), begin + kTaskWeights);
    size_t i = begin;
#if defined(LASTFLOP_HAVE_AVX2)
    if (pool.isa() == VectorIsa::kAvx2 && (first + begin) % 4 == 0) {
      const size_t count = (end - begin) / 8 * 8;
      FillBf16Avx2({.seed = slice.seed,
                    .stream = slice.stream,
                    .first_draw = (first + begin) / 4,
                    .unit = slice.amplitude * 0x1.0p-15f},
                   static_cast<int64_t>(count), table.data() + begin);
      i += count;
    }
#endif
    for (; i < end; ++i) {
      table[i] = ToBf16(TrueWeight(slice.seed, slice.stream, first + i, slice.amplitude));
    }
  });
}

}  // namespace lastflop
