#include <algorithm>

#include "kernels/cpu/row_ops.h"
#include "kernels/moe_combine/moe_combine.h"

namespace lastflop {
namespace {

constexpr int64_t kTaskCols = 1024;  // So that one token is work for more than one thread.

}  // namespace

void MoeCombine(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                std::span<const Bf16> shared, std::span<Bf16> out, ThreadPool& pool) {
  const int64_t hidden = shape.hidden_size;
  const int64_t tasks_per_token = (hidden + kTaskCols - 1) / kTaskCols;
  pool.ParallelFor(shape.num_tokens * tasks_per_token, [&](int64_t task, int thread) {
    const int64_t t = task / tasks_per_token;
    const int64_t begin = task % tasks_per_token * kTaskCols;
    const int64_t size = std::min(kTaskCols, hidden - begin);
    auto* sum = reinterpret_cast<float*>(pool.Scratch(thread));
    std::fill_n(sum, size, 0.0f);
    if (shape.add_shared) {
      AddScaled(1.0f, shared.data() + t * hidden + begin, size, sum, pool.isa());
    }
    for (int64_t k = 0; k < shape.top_k; ++k) {
      const int32_t pair = pairs.pair_of[static_cast<size_t>(t * shape.top_k + k)];
      if (pair >= 0) {
        AddScaled(pairs.weight[static_cast<size_t>(pair)], in.data() + pair * hidden + begin, size,
                  sum, pool.isa());
      }
    }
    StoreRow(sum, size, out.data() + t * hidden + begin, pool.isa());
  });
}

}  // namespace lastflop
