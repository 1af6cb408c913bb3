#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weights_random.h"
#include "step/shapes.h"

// Embedding: the rows of a table that the token ids name.
//
//   out[t, h] = table[token_id[t] - vocab_begin, h], zeros where the id is another rank's
//
// `table` is [vocab_rows, hidden_size], `out` is [num_tokens, hidden_size]; both row-major bf16.
namespace lastflop {

// InvalidArgument for sizes out of range.
absl::Status ValidateEmbedding(const EmbeddingShape& shape);

void EmbeddingReference(const EmbeddingShape& shape, std::span<const int32_t> token_ids,
                        std::span<const Bf16> table, std::span<float> out);

void Embedding(const EmbeddingShape& shape, std::span<const int32_t> token_ids,
               std::span<const Bf16> table, std::span<Bf16> out, ThreadPool& pool);

// Writes the true weights of a slice of a one-matrix tensor as plain rows, where `table` is
// [table.size() / slice.cols_full, slice.cols_full] from slice.part_row_begin[0] on: embedding
// tables, gains and biases (rows of one weight), which no kernel reads as panels.
void FillRandomRows(const WeightSlice& slice, std::span<Bf16> table, ThreadPool& pool);

}  // namespace lastflop
