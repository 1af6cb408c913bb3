#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_builds.h"

namespace lastflop {
namespace {

// A task works on about this many values: 1 to 2 us on one core.
constexpr int64_t kTaskValues = 8192;

void RmsNormRow(const NormRow& row, VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    RmsNormRowAvx2(row);
    return;
  }
#endif
  static_cast<void>(isa);
  RmsNormRowPortable(row);
}

}  // namespace

absl::Status ValidateRmsNorm(const NormShape& shape) {
  const bool is_part = shape.parts != 1 || shape.offset != 0 || shape.stride > shape.size;
  if (shape.rows < 0 || shape.size < 1 || shape.parts < 1 || shape.offset < 0 ||
      (is_part && shape.offset + shape.parts * shape.size > shape.stride) ||
      (is_part && shape.add_residual)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rms_norm: rows=", shape.rows, " size=", shape.size, " stride=", shape.stride,
        " parts=", shape.parts, " offset=", shape.offset, " add_residual=", shape.add_residual,
        ": parts lie in their row and have no residual"));
  }
  return absl::OkStatus();
}

void RmsNorm(const NormShape& shape, std::span<const Bf16> in, std::span<Bf16> residual,
             std::span<const Bf16> gain, std::span<Bf16> out, ThreadPool& pool) {
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskValues / shape.size);
  pool.ParallelFor((shape.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(shape.rows, (task + 1) * rows_per_task);
    for (int64_t t = task * rows_per_task; t < end; ++t) {
      RmsNormRow({.in = in.data() + t * shape.size,
                  .residual = residual.data() + t * shape.size,
                  .gain = gain.data(),
                  .out = out.data() + t * shape.size,
                  .size = shape.size,
                  .epsilon = static_cast<float>(shape.epsilon),
                  .add_residual = shape.add_residual},
                 pool.isa());
    }
  });
}

void RmsNormParts(const NormShape& shape, std::span<Bf16> data, std::span<const Bf16> gain,
                  ThreadPool& pool) {
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskValues / (shape.size * shape.parts));
  pool.ParallelFor((shape.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(shape.rows, (task + 1) * rows_per_task);
    for (int64_t t = task * rows_per_task; t < end; ++t) {
      for (int64_t part = 0; part < shape.parts; ++part) {
        Bf16* const at = data.data() + t * shape.stride + shape.offset + part * shape.size;
        RmsNormRow({.in = at,
                    .gain = gain.data(),
                    .out = at,
                    .size = shape.size,
                    .epsilon = static_cast<float>(shape.epsilon)},
                   pool.isa());
      }
    }
  });
}

void RmsNormRowPortable(const NormRow& row) {
  float sum = 0;
  Bf16* const kept = row.residual != nullptr ? row.residual : row.out;
  for (int64_t i = 0; i < row.size; ++i) {
    float value = ToFloat(row.in[i]);
    if (row.add_residual) {
      value = RoundToBf16(value + ToFloat(row.residual[i]));
    }
    kept[i] = ToBf16(value);
    sum += value * value;
  }
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(row.size) + row.epsilon);
  for (int64_t i = 0; i < row.size; ++i) {
    row.out[i] = ToBf16(ToFloat(kept[i]) * scale * ToFloat(row.gain[i]));
  }
}

}  // namespace lastflop
