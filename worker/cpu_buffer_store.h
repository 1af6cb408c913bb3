#pragma once

#include "kernels/cpu/aligned_buffer.h"
#include "worker/buffer_store.h"

namespace lastflop {

using CpuBufferStore = BufferStore<AlignedBuffer>;

}  // namespace lastflop
