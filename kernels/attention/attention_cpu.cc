#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_builds.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/cpu/row_ops.h"

namespace lastflop {
namespace {

void AttendBlock(const AttentionBlock& block, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    AttendBlockAvx2(block);
    return;
  }
#endif
  static_cast<void>(isa);
  AttendBlockPortable(block);
}

void Fp8ToBf16(const Fp8* in, int64_t count, Bf16* out, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    Fp8ToBf16Avx2(in, count, out);
    return;
  }
#endif
  static_cast<void>(isa);
  Fp8ToBf16Portable(in, count, out);
}

// Asks for memory that is read soon, which may lie past the end of a buffer.
void Prefetch(const std::byte* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(at + i);
  }
}

// Cuts a thread's scratch into 64-byte aligned arrays.
class ScratchCutter {
 public:
  explicit ScratchCutter(std::byte* scratch) : at_(scratch) {}
  template <typename T>
  T* Take(int64_t count) {
    auto* const taken = reinterpret_cast<T*>(at_);
    at_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }

 private:
  std::byte* at_;
};

// One call: what its tasks share.
class AttentionCall {
 public:
  AttentionCall(const AttentionShape& shape, std::span<const Bf16> query, const KvCache& cache,
                std::span<Bf16> out, std::span<std::byte> workspace, ThreadPool& pool)
      : shape_(shape),
        widths_(WidthsOf(shape)),
        plan_(PlanAttention(shape, pool.num_threads())),
        query_(query.data()),
        cache_(cache),
        out_(out.data()),
        partials_(reinterpret_cast<float*>(workspace.data())),
        pool_(pool) {
    assert(TaskScratchBytes(shape, plan_) <= static_cast<int64_t>(ThreadPool::kScratchBytes));
    assert(static_cast<int64_t>(workspace.size()) >=
           AttentionWorkspaceBytes(shape, pool.num_threads()));
  }

  void Run() {
    pool_.RunOnAll([&](int thread) {
      for (int64_t i = pool_.NextTask(0); i < plan_.num_tasks; i = pool_.NextTask(0)) {
        RunTask(i, pool_.Scratch(thread));
      }
      if (plan_.chunks > 1) {
        pool_.Barrier();
        for (int64_t row = pool_.NextTask(1); row < plan_.num_rows; row = pool_.NextTask(1)) {
          MergeRow(row, reinterpret_cast<float*>(pool_.Scratch(thread)));
        }
      }
    });
  }

 private:
  struct Task {
    int64_t sequence = 0;
    int64_t first_head = 0;  // KV heads.
    int64_t num_heads = 0;
    int64_t first_row = 0;  // Of each head.
    int64_t num_rows = 0;
    int64_t chunk = 0;
    int64_t begin = 0;  // Positions.
    int64_t end = 0;
  };

  // A thread's arrays for one task. Rows of all its heads follow each other.
  struct State {
    float* query;
    float* out;
    float* scores;
    float* max;
    float* sum;
    float* decay;
    int64_t* num_visible;
    Bf16* keys;  // fp8 only: a block, converted.
    Bf16* values;
  };

  Task TaskOf(int64_t index) const {
    Task task;
    task.chunk = index % plan_.chunks;
    index /= plan_.chunks;
    // Later rows of a prompt see more positions: they come first, so that no long task comes last.
    const int64_t row_block = plan_.row_blocks - 1 - index % plan_.row_blocks;
    index /= plan_.row_blocks;
    task.first_head = index % plan_.head_blocks * plan_.heads_per_task;
    task.num_heads = std::min(plan_.heads_per_task, shape_.num_kv_heads - task.first_head);
    task.sequence = index / plan_.head_blocks;
    task.first_row = row_block * plan_.rows_per_task;
    task.num_rows =
        std::max<int64_t>(0, std::min(plan_.rows_per_task, plan_.rows_per_head - task.first_row));
    task.begin = task.chunk * plan_.chunk_positions;
    const int64_t last_row = task.first_row + task.num_rows - 1;
    task.end = std::min(task.begin + plan_.chunk_positions, Visible(last_row));
    return task;
  }

  // Positions that a row sees, from 0 on.
  int64_t Visible(int64_t row) const { return shape_.context + row / plan_.group + 1; }

  State CutScratch(const Task& task, std::byte* scratch) const {
    const int64_t rows = task.num_heads * task.num_rows;
    ScratchCutter cutter(scratch);
    State state = {.query = cutter.Take<float>(rows * PaddedWidth(widths_.key)),
                   .out = cutter.Take<float>(rows * PaddedWidth(widths_.value)),
                   .scores = cutter.Take<float>(rows * kBlockPositions),
                   .max = cutter.Take<float>(rows),
                   .sum = cutter.Take<float>(rows),
                   .decay = cutter.Take<float>(rows),
                   .num_visible = cutter.Take<int64_t>(task.num_rows),
                   .keys = nullptr,
                   .values = nullptr};
    if (shape_.cache == CacheFormat::kFp8) {
      state.keys = cutter.Take<Bf16>(kBlockPositions * widths_.key);
      state.values = cutter.Take<Bf16>(kBlockPositions * widths_.value);
    }
    return state;
  }

  // Element of `query_` (widths_.key of them) and row of the output for a task's row.
  int64_t QueryRow(int64_t sequence, int64_t kv_head, int64_t row) const {
    const int64_t token = sequence * shape_.query_tokens + row / plan_.group;
    return token * shape_.num_heads + kv_head * plan_.group + row % plan_.group;
  }

  void Begin(const Task& task, const State& state) const {
    const auto scale = static_cast<float>(shape_.softmax_scale);
    const int64_t padded = PaddedWidth(widths_.key);
    for (int64_t h = 0; h < task.num_heads; ++h) {
      for (int64_t r = 0; r < task.num_rows; ++r) {
        const int64_t row = QueryRow(task.sequence, task.first_head + h, task.first_row + r);
        const Bf16* const from = query_ + row / shape_.num_heads * widths_.query_stride +
                                 row % shape_.num_heads * widths_.query_offset;
        float* const to = state.query + (h * task.num_rows + r) * padded;
        for (int64_t d = 0; d < widths_.key; ++d) {
          to[d] = ToFloat(from[d]) * scale;
        }
        std::fill(to + widths_.key, to + padded, 0.0f);
      }
    }
    const int64_t rows = task.num_heads * task.num_rows;
    std::fill_n(state.out, rows * PaddedWidth(widths_.value), 0.0f);
    std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum, rows, 0.0f);
  }

  // Keys and values of one head of a block of positions, as bf16.
  void PointAtCache(const Task& task, int64_t head, int64_t position, AttentionBlock& block,
                    const State& state) const {
    const int64_t at = (task.sequence * plan_.positions + position) * widths_.cache_stride +
                       head * widths_.kv_head_offset;
    const bool is_mla = shape_.kind == AttentionKind::kMla;
    const std::byte* const values = is_mla ? cache_.keys.data() : cache_.values.data();
    if (shape_.cache == CacheFormat::kBf16) {
      block.keys = reinterpret_cast<const Bf16*>(cache_.keys.data()) + at;
      block.values = reinterpret_cast<const Bf16*>(values) + at;
      block.key_stride = block.value_stride = widths_.cache_stride;
      block.streams = true;
      return;
    }
    for (int64_t s = 0; s < block.num_positions; ++s) {
      const int64_t from = at + s * widths_.cache_stride;
      const int64_t ahead = from + kBlockPositions * widths_.cache_stride;
      Prefetch(cache_.keys.data() + ahead, widths_.key);
      if (!is_mla) {
        Prefetch(values + ahead, widths_.value);
      }
      Fp8ToBf16(reinterpret_cast<const Fp8*>(cache_.keys.data()) + from, widths_.key,
                state.keys + s * widths_.key, pool_.isa());
      if (!is_mla) {
        Fp8ToBf16(reinterpret_cast<const Fp8*>(values) + from, widths_.value,
                  state.values + s * widths_.value, pool_.isa());
      }
    }
    block.keys = state.keys;
    block.key_stride = widths_.key;
    block.values = is_mla ? state.keys : state.values;
    block.value_stride = is_mla ? widths_.key : widths_.value;
  }

  void RunTask(int64_t index, std::byte* scratch) const {
    const Task task = TaskOf(index);
    if (task.num_rows == 0) {
      return;
    }
    const State state = CutScratch(task, scratch);
    Begin(task, state);
    for (int64_t position = task.begin; position < task.end; position += kBlockPositions) {
      AttentionBlock block;
      block.num_rows = task.num_rows;
      block.key_width = widths_.key;
      block.value_width = widths_.value;
      block.num_positions = std::min(kBlockPositions, task.end - position);
      block.num_visible = state.num_visible;
      for (int64_t r = 0; r < task.num_rows; ++r) {
        state.num_visible[r] = Visible(task.first_row + r) - position;
      }
      for (int64_t h = 0; h < task.num_heads; ++h) {
        const int64_t first = h * task.num_rows;
        PointAtCache(task, task.first_head + h, position, block, state);
        block.query = state.query + first * PaddedWidth(widths_.key);
        block.out = state.out + first * PaddedWidth(widths_.value);
        block.max = state.max + first;
        block.sum = state.sum + first;
        block.decay = state.decay + first;
        block.scores = state.scores + first * kBlockPositions;
        AttendBlock(block, pool_.isa());
      }
    }
    End(task, state);
  }

  // Hands a task's rows on: to the output, or to the merge.
  void End(const Task& task, const State& state) const {
    const int64_t padded = PaddedWidth(widths_.value);
    for (int64_t h = 0; h < task.num_heads; ++h) {
      for (int64_t r = 0; r < task.num_rows; ++r) {
        const int64_t i = h * task.num_rows + r;
        float* const sums = state.out + i * padded;
        const int64_t row = QueryRow(task.sequence, task.first_head + h, task.first_row + r);
        if (plan_.chunks == 1) {
          StoreOut(sums, state.sum[i], row);
          continue;
        }
        float* const partial = partials_ + (row * plan_.chunks + task.chunk) * plan_.partial_floats;
        std::copy_n(sums, padded, partial);
        partial[padded] = state.max[i];
        partial[padded + 1] = state.sum[i];
      }
    }
  }

  void StoreOut(float* sums, float sum, int64_t row) const {
    const float inverse = 1.0f / sum;
    for (int64_t v = 0; v < widths_.value; ++v) {
      sums[v] *= inverse;
    }
    StoreRow(sums, widths_.value, out_ + row * widths_.value, pool_.isa());
  }

  void MergeRow(int64_t row, float* merged) const {
    const int64_t padded = PaddedWidth(widths_.value);
    const float* const partials = partials_ + row * plan_.chunks * plan_.partial_floats;
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < plan_.chunks; ++c) {
      max = std::max(max, partials[c * plan_.partial_floats + padded]);
    }
    std::fill_n(merged, padded, 0.0f);
    float sum = 0;
    for (int64_t c = 0; c < plan_.chunks; ++c) {
      const float* const partial = partials + c * plan_.partial_floats;
      // A chunk that the row does not see has the maximum -infinity and weighs nothing.
      const float weight = std::exp(partial[padded] - max);
      AddScaled(weight, partial, padded, merged, pool_.isa());
      sum += weight * partial[padded + 1];
    }
    StoreOut(merged, sum, row);
  }

  const AttentionShape& shape_;
  const AttentionWidths widths_;
  const AttentionPlan plan_;
  const Bf16* const query_;
  const KvCache& cache_;
  Bf16* const out_;
  float* const partials_;
  ThreadPool& pool_;
};

}  // namespace

void Attention(const AttentionShape& shape, std::span<const Bf16> query, const KvCache& cache,
               std::span<Bf16> out, std::span<std::byte> workspace, ThreadPool& pool) {
  AttentionCall(shape, query, cache, out, workspace, pool).Run();
}

void AttendBlockPortable(const AttentionBlock& block) {
  const int64_t query_width = PaddedWidth(block.key_width);
  const int64_t out_width = PaddedWidth(block.value_width);
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const int64_t visible = std::min(block.num_visible[r], block.num_positions);
    float* const scores = block.scores + r * kBlockPositions;
    float max = block.max[r];
    for (int64_t s = 0; s < visible; ++s) {
      scores[s] = 0;
      for (int64_t d = 0; d < block.key_width; ++d) {
        scores[s] +=
            block.query[r * query_width + d] * ToFloat(block.keys[s * block.key_stride + d]);
      }
      max = std::max(max, scores[s]);
    }
    if (visible <= 0) {
      continue;
    }
    const float decay = std::exp(block.max[r] - max);
    float* const out = block.out + r * out_width;
    block.sum[r] *= decay;
    for (int64_t v = 0; v < block.value_width; ++v) {
      out[v] *= decay;
    }
    for (int64_t s = 0; s < visible; ++s) {
      const float weight = std::exp(scores[s] - max);
      block.sum[r] += weight;
      for (int64_t v = 0; v < block.value_width; ++v) {
        out[v] += weight * ToFloat(block.values[s * block.value_stride + v]);
      }
    }
    block.max[r] = max;
  }
}

void Fp8ToBf16Portable(const Fp8* in, int64_t count, Bf16* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = ToBf16(ToFloat(in[i]));
  }
}

}  // namespace lastflop
