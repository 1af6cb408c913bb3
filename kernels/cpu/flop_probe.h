#pragma once

#include "kernels/cpu/thread_pool.h"

namespace lastflop {

// The most flop per us that all threads of `pool` together reach: fp32 multiply-adds on registers
// alone, in the build that the kernels run in. No product of any format is faster, as all are
// multiplied in fp32. Takes about 40 ms of every core; the sum of each thread's fastest run, since
// whatever disturbs one only lengthens it.
double MeasureFlopPerMicro(ThreadPool& pool);

}  // namespace lastflop
