#include "kernels/cpu/vector_isa.h"

namespace lastflop {

VectorIsa DetectVectorIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return VectorIsa::kAvx2;
  }
#endif
  return VectorIsa::kPortable;
}

absl::string_view Describe(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kPortable:
      return "portable (slow: this CPU has no AVX2)";
    case VectorIsa::kAvx2:
      return "avx2";
  }
  return "unknown";
}

}  // namespace lastflop
