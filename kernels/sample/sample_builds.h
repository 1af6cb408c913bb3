#pragma once

#include <cstdint>

namespace lastflop {

// Index of the first largest of in[0, count); 0 when none is a number. count >= 1.
int64_t FirstMaxPortable(const float* in, int64_t count);
int64_t FirstMaxAvx2(const float* in, int64_t count);

}  // namespace lastflop
