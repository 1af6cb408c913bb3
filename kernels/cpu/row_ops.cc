#include "kernels/cpu/row_ops.h"

#include <cmath>

#include "kernels/cpu/row_ops_builds.h"

// Calls the AVX2 build and returns when there is one and `isa` asks for it.
#if defined(LASTFLOP_HAVE_AVX2)
#define LASTFLOP_RETURN_AVX2(call) \
  if (isa == VectorIsa::kAvx2) {   \
    call;                          \
    return;                        \
  }
#else
#define LASTFLOP_RETURN_AVX2(call) (void)isa;
#endif

namespace lastflop {
namespace {

float Value(float value) { return value; }
float Value(Bf16 value) { return ToFloat(value); }

template <typename T>
void AddScaledPortable(float scale, const T* in, int64_t size, float* acc) {
  for (int64_t i = 0; i < size; ++i) {
    acc[i] += scale * Value(in[i]);
  }
}

template <typename T>
void SiluMulPortable(const T* gate, const T* up, int64_t size, Bf16* out) {
  for (int64_t i = 0; i < size; ++i) {
    const float x = Value(gate[i]);
    out[i] = ToBf16(x / (1.0f + std::exp(-x)) * Value(up[i]));
  }
}

}  // namespace

void StorePanel(const float* tile, int64_t num_rows, int64_t num_cols, Bf16* out,
                int64_t out_stride, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(StorePanelAvx2(tile, num_rows, num_cols, out, out_stride))
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = 0; j < num_cols; ++j) {
      out[i * out_stride + j] = ToBf16(tile[i * 16 + j]);
    }
  }
}

void AddScaled(float scale, const float* in, int64_t size, float* acc, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(AddScaledAvx2(scale, in, size, acc))
  AddScaledPortable(scale, in, size, acc);
}

void AddScaled(float scale, const Bf16* in, int64_t size, float* acc, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(AddScaledAvx2(scale, in, size, acc))
  AddScaledPortable(scale, in, size, acc);
}

void StoreRow(const float* in, int64_t size, Bf16* out, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(StoreRowAvx2(in, size, out))
  for (int64_t i = 0; i < size; ++i) {
    out[i] = ToBf16(in[i]);
  }
}

void SiluMul(const float* gate, const float* up, int64_t size, Bf16* out, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(SiluMulAvx2(gate, up, size, out))
  SiluMulPortable(gate, up, size, out);
}

void SiluMul(const Bf16* gate, const Bf16* up, int64_t size, Bf16* out, VectorIsa isa) {
  LASTFLOP_RETURN_AVX2(SiluMulAvx2(gate, up, size, out))
  SiluMulPortable(gate, up, size, out);
}

}  // namespace lastflop
