#include <algorithm>

#include "gpu/cuda_status.h"
#include "kernels/cuda/read_probe_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;

__device__ inline uint4 LoadStreaming(const uint4* from) {
  uint4 value;
  // PTX ISA, ld.global.nc.L1::no_allocate: read once, not kept in L1.
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

__global__ void __launch_bounds__(kThreads)
    ReadProbeKernel(const uint4* data, int64_t count, uint32_t* sink) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  uint32_t sum = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      values[u] = LoadStreaming(data + i + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum += values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
    }
  }
  for (; i < count; i += stride) {
    const uint4 value = LoadStreaming(data + i);
    sum += value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sum == 0x9E3779B9u) {  // As good as never: the sum is needed, its write is not.
    *sink = sum;
  }
}

__global__ void __launch_bounds__(kThreads) FillProbeKernel(uint4* data, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const auto x = static_cast<uint32_t>(i) * 2654435761u;
    data[i] = make_uint4(x, x ^ 0x85EBCA6Bu, x * 31u + 7u, ~x);
  }
}

int GridOf(int64_t count) {
  int device = 0;
  int num_sms = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device);
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<int>(std::clamp<int64_t>(blocks, 1, int64_t{4} * num_sms));
}

}  // namespace

absl::Status LaunchReadProbe(const void* data, int64_t bytes, uint32_t* sink, cudaStream_t stream) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  ReadProbeKernel<<<GridOf(count), kThreads, 0, stream>>>(static_cast<const uint4*>(data), count,
                                                          sink);
  return LastLaunchStatus("a read probe");
}

absl::Status LaunchFillProbe(void* data, int64_t bytes, cudaStream_t stream) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  FillProbeKernel<<<GridOf(count), kThreads, 0, stream>>>(static_cast<uint4*>(data), count);
  return LastLaunchStatus("filling a probe");
}

}  // namespace lastflop
