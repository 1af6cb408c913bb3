#include <algorithm>

#include "kernels/cpu/row_ops.h"
#include "kernels/swiglu/swiglu.h"

namespace lastflop {
namespace {

// A task writes about this many values: 2 us of work on one core.
constexpr int64_t kTaskValues = 4096;

}  // namespace

void Swiglu(const ActivationShape& shape, const PairList* pairs, std::span<const Bf16> in,
            std::span<Bf16> out, ThreadPool& pool) {
  const int64_t size = shape.intermediate_size;
  const int64_t rows = SwigluRows(shape, pairs);
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskValues / size);
  pool.ParallelFor((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int /*thread*/) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t r = task * rows_per_task; r < end; ++r) {
      const Bf16* gate = in.data() + r * 2 * size;
      SiluMul(gate, gate + size, size, out.data() + r * size, pool.isa());
    }
  });
}

}  // namespace lastflop
