#pragma once

#include "absl/strings/string_view.h"

namespace lastflop {

// Which build of a CPU kernel runs. kPortable is plain C++ for a CPU without AVX2: slow, and a
// result that it made says so (Environment's `vector_isa`).
enum class VectorIsa {
  kPortable,
  kAvx2,  // AVX2, FMA and F16C.
};

// The best build that this CPU runs.
VectorIsa DetectVectorIsa();

// "portable (slow: this CPU has no AVX2)", "avx2".
absl::string_view Describe(VectorIsa isa);

}  // namespace lastflop
