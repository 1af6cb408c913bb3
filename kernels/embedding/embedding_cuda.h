#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "step/shapes.h"

namespace lastflop {

// Enqueues out[t, h] = table[token_ids[t] - vocab_begin, h], zeros where the id is another rank's
// (kernels/embedding/embedding.h). Device memory: `token_ids` [num_tokens], `table` [vocab_rows,
// hidden_size], `out` [num_tokens, hidden_size]; table and out 16-byte aligned.
// InvalidArgument for sizes out of range; Internal when the launch fails.
absl::Status LaunchEmbedding(const EmbeddingShape& shape, const int32_t* token_ids,
                             const __nv_bfloat16* table, __nv_bfloat16* out, cudaStream_t stream);

}  // namespace lastflop
