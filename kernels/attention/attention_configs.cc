#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_builds.h"
#include "kernels/attention/attention_plan.h"

namespace lastflop {
namespace {

// Query and output rows of a task: half of a 512 KiB L2 is left to the cache that streams by.
constexpr int64_t kStateBytes = 160 << 10;
// Under causal masking a wide block of tokens computes much that is masked; beyond this many rows
// nothing is gained by sharing reads.
constexpr int64_t kMaxPromptRows = 64;
// A chunk shorter than this is not worth its merge.
constexpr int64_t kLeastChunk = 256;

int64_t RowBytes(const AttentionWidths& widths) {
  const int64_t floats = PaddedWidth(widths.key) + PaddedWidth(widths.value) + kBlockPositions + 3;
  return floats * static_cast<int64_t>(sizeof(float)) + static_cast<int64_t>(sizeof(int64_t));
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

AttentionWidths WidthsOf(const AttentionShape& shape) {
  if (shape.kind == AttentionKind::kMla) {
    const int64_t width = shape.kv_lora_rank + shape.qk_rope_head_dim;
    return {.key = width,
            .value = shape.kv_lora_rank,
            .query_stride = shape.num_heads * width,
            .cache_stride = width,
            .query_offset = width,
            .kv_head_offset = width};
  }
  return {.key = shape.head_dim,
          .value = shape.head_dim,
          .query_stride = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim,
          .cache_stride = shape.num_kv_heads * shape.head_dim,
          .query_offset = shape.head_dim,
          .kv_head_offset = shape.head_dim};
}

absl::Status ValidateAttention(const AttentionShape& shape) {
  const AttentionWidths widths = WidthsOf(shape);
  // A row's state and one block of converted positions fit a thread's scratch.
  constexpr int64_t kMaxWidth = 768;
  if (shape.num_sequences < 0 || shape.query_tokens < 1 || shape.context < 0 ||
      shape.num_heads < 1 || shape.num_kv_heads < 1 || widths.value < 1 || widths.key < 1 ||
      widths.key > kMaxWidth || !(shape.softmax_scale > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: num_sequences=", shape.num_sequences, " query_tokens=", shape.query_tokens,
        " context=", shape.context, " num_heads=", shape.num_heads, " num_kv_heads=",
        shape.num_kv_heads, " key width=", widths.key, " value width=", widths.value,
        " softmax_scale=", shape.softmax_scale, ": key widths are 1 to ", kMaxWidth));
  }
  if (shape.kind == AttentionKind::kMla && shape.num_kv_heads != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: mla with num_kv_heads=", shape.num_kv_heads, ", expected 1"));
  }
  if (shape.num_heads % shape.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("attention: num_heads ", shape.num_heads,
                                                   " mod num_kv_heads ", shape.num_kv_heads, " = ",
                                                   shape.num_heads % shape.num_kv_heads));
  }
  return absl::OkStatus();
}

AttentionPlan PlanAttention(const AttentionShape& shape, int num_threads) {
  const AttentionWidths widths = WidthsOf(shape);
  AttentionPlan plan;
  plan.group = shape.num_heads / shape.num_kv_heads;
  plan.rows_per_head = plan.group * shape.query_tokens;
  int64_t max_rows = std::max<int64_t>(4, kStateBytes / RowBytes(widths) / 4 * 4);
  if (plan.rows_per_head > kMaxPromptRows && shape.query_tokens > 1) {
    max_rows = std::min(max_rows, kMaxPromptRows);
  }
  plan.heads_per_task = std::clamp<int64_t>(max_rows / plan.rows_per_head, 1, shape.num_kv_heads);
  plan.head_blocks = DivideUp(shape.num_kv_heads, plan.heads_per_task);
  plan.row_blocks = DivideUp(plan.rows_per_head, max_rows);
  plan.rows_per_task = DivideUp(plan.rows_per_head, plan.row_blocks);
  plan.positions = shape.context + shape.query_tokens;

  const int64_t tasks = shape.num_sequences * plan.head_blocks * plan.row_blocks;
  const int64_t wanted = 4 * num_threads;
  const int64_t most = std::max<int64_t>(1, plan.positions / kLeastChunk);
  const int64_t chunks = num_threads == 1 || tasks >= wanted
                             ? 1
                             : std::min(DivideUp(wanted, std::max<int64_t>(1, tasks)), most);
  plan.chunk_positions =
      DivideUp(DivideUp(plan.positions, chunks), kBlockPositions) * kBlockPositions;
  plan.chunks = DivideUp(plan.positions, plan.chunk_positions);
  plan.num_tasks = tasks * plan.chunks;
  plan.partial_floats = PaddedWidth(widths.value) + 8;
  plan.num_rows = shape.num_sequences * shape.num_kv_heads * plan.rows_per_head;
  return plan;
}

int64_t TaskScratchBytes(const AttentionShape& shape, const AttentionPlan& plan) {
  const AttentionWidths widths = WidthsOf(shape);
  const int64_t rows = plan.heads_per_task * plan.rows_per_task;
  // Nine parts, each rounded up to a cache line.
  const int64_t converted =
      shape.cache == CacheFormat::kFp8
          ? kBlockPositions * (widths.key + widths.value) * static_cast<int64_t>(sizeof(uint16_t))
          : 0;
  return rows * RowBytes(widths) + converted + 9 * 64;
}

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int num_threads) {
  const AttentionPlan plan = PlanAttention(shape, num_threads);
  if (plan.chunks <= 1) {
    return 0;
  }
  return plan.num_rows * plan.chunks * plan.partial_floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace lastflop
