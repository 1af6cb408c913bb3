#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8.h"

// The builds of attention's inner part: some query rows against a block of positions.
namespace lastflop {

inline constexpr int64_t kBlockPositions = 32;

// Widths are padded to whole vectors in fp32 buffers.
inline constexpr int64_t PaddedWidth(int64_t width) { return (width + 7) / 8 * 8; }

// Online softmax over blocks: max, sum and out are the state of each row before and after.
struct AttentionBlock {
  int64_t num_rows = 0;
  int64_t key_width = 0;
  int64_t value_width = 0;
  int64_t num_positions = 0;     // 1 to kBlockPositions.
  const float* query = nullptr;  // [num_rows, PaddedWidth(key_width)], scaled; zeros as padding.
  const Bf16* keys = nullptr;    // Position s at keys + s * key_stride.
  int64_t key_stride = 0;
  const Bf16* values = nullptr;
  int64_t value_stride = 0;
  bool streams = false;  // The next block lies behind this one: ask for it ahead of time.
  const int64_t* num_visible = nullptr;  // Of the block's positions, per row; may be <= 0.
  float* max = nullptr;                  // [num_rows], -infinity before the first block.
  float* sum = nullptr;                  // [num_rows], of exp(score - max)
  float* out = nullptr;     // [num_rows, PaddedWidth(value_width)], of exp(score - max) * value
  float* scores = nullptr;  // Scratch [num_rows, kBlockPositions].
  float* decay = nullptr;   // Scratch [num_rows].
};

void AttendBlockPortable(const AttentionBlock& block);
void AttendBlockAvx2(const AttentionBlock& block);

// out[i] = in[i], exact.
void Fp8ToBf16Portable(const Fp8* in, int64_t count, Bf16* out);
void Fp8ToBf16Avx2(const Fp8* in, int64_t count, Bf16* out);

}  // namespace lastflop
