#pragma once

#include <cstdint>

#include "step/shapes.h"

namespace lastflop {

// How the work of one call is cut into tasks.
//
// A row is one query head of one token. The rows that share a KV head of a sequence are numbered
// token * group + head in group. A task is some rows of some KV heads of a sequence against a chunk
// of its positions.
struct AttentionPlan {
  int64_t group = 0;           // Query heads a KV head.
  int64_t rows_per_head = 0;   // group * query_tokens
  int64_t heads_per_task = 0;  // KV heads; all of them where their state fits, so that a position
                               // is read in one piece.
  int64_t head_blocks = 0;
  int64_t rows_per_task = 0;  // Of one KV head.
  int64_t row_blocks = 0;
  int64_t positions = 0;        // context + query_tokens
  int64_t chunk_positions = 0;  // A multiple of kBlockPositions; all of them with one chunk.
  int64_t chunks = 0;
  int64_t num_tasks = 0;

  // fp32 values that a row of a chunk leaves for the merge: its sums, its maximum and its sum.
  int64_t partial_floats = 0;
  int64_t num_rows = 0;  // Of the whole call.
};

AttentionPlan PlanAttention(const AttentionShape& shape, int num_threads);

// Bytes of a thread's scratch that one task of the plan needs.
int64_t TaskScratchBytes(const AttentionShape& shape, const AttentionPlan& plan);

}  // namespace lastflop
