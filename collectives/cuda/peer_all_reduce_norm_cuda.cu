#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"
#include "collectives/cuda/peer_packet.cuh"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int kMaxNormThreads = 1024;
constexpr int kMaxCluster = 8;

// barrier.cluster, mapa, st.shared::cluster: from sm_90 on; elsewhere a cluster is
// a block.
__device__ void ArriveAtCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ void WaitForCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
__device__ void StoreInBlock(float* own, int block, float value) {
#if __CUDA_ARCH__ >= 900
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  asm volatile(
      "{\n"
      ".reg .b32 theirs;\n"
      "mapa.shared::cluster.u32 theirs, %0, %1;\n"
      "st.shared::cluster.f32 [theirs], %2;\n"
      "}\n" ::"r"(address),
      "r"(block), "f"(value)
      : "memory");
#else
  *own = value;
#endif
}

__device__ float WarpTotal(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  }
  return value;
}

// Sum over the threads of a block. `sums` is not used again before the block meets once more.
__device__ float BlockTotal(float value, float (&sums)[32]) {
  value = WarpTotal(value);
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    sums[threadIdx.x / 32] = value;
  }
  __syncthreads();
  return WarpTotal(lane < static_cast<int>(blockDim.x) / 32 ? sums[lane] : 0.0f);
}

// The residual of one packet, rounded as its own tensor is: what is normed.
__device__ uint4 AddResidual(const uint4& sum, const uint4& residual) {
  PacketSum total;
  total.Add(sum);
  total.Add(residual);
  return total.Rounded();
}

__device__ float SumOfSquares(const uint4& packet) {
  const uint32_t words[4] = {packet.x, packet.y, packet.z, packet.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Unpack(words[i]);
    sum += pair.x * pair.x + pair.y * pair.y;
  }
  return sum;
}

__device__ uint4 Normed(const uint4& packet, const uint4& gain, float scale) {
  const uint32_t words[4] = {packet.x, packet.y, packet.z, packet.w};
  const uint32_t gains[4] = {gain.x, gain.y, gain.z, gain.w};
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 value = Unpack(words[i]);
    const float2 by = Unpack(gains[i]);
    out[i] = Pack(make_float2(value.x * (scale * by.x), value.y * (scale * by.y)));
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

struct NormTensors {
  const __nv_bfloat16* in;
  __nv_bfloat16* residual;
  const __nv_bfloat16* gain;
  __nv_bfloat16* out;
  int64_t rows;
  int row_packets;
  int share;      // Packets of a row that a block has.
  float inverse;  // 1 / elements of a row
  float epsilon;
  bool add_residual;
};

// A cluster a row, in turns, a packet a thread: one SM alone would take longer to read and write a
// row than it is on the wire. The row after this one is sent before this one's norm is made.
template <int kRanks>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    AllReduceNormKernel(const __grid_constant__ PeerView view,
                        const __grid_constant__ NormTensors t) {
  __shared__ float warps[2][32];
  __shared__ float blocks[2][kMaxCluster];
  const int cluster = static_cast<int>(gridDim.x);  // Blocks of a row.
  const int in_cluster = static_cast<int>(blockIdx.x);
  const int column = in_cluster * t.share + static_cast<int>(threadIdx.x);
  const bool has_packet = static_cast<int>(threadIdx.x) < t.share && column < t.row_packets;
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  const uint4 gain = has_packet ? reinterpret_cast<const uint4*>(t.gain)[column] : zeros;
  if (cluster > 1) {
    ArriveAtCluster();  // All blocks are there before one writes into another, below.
  }
  WaitForEarlierKernels();
  LetNextKernelStart();
  PeerCall<kRanks> call(view);
  const int num_peers = call.num_ranks() - 1;
  const int64_t packets = t.rows * t.row_packets;
  uint4 own = zeros;
  uint4 residual = zeros;
  const auto load = [&](int64_t row) {
    if (has_packet) {
      own = reinterpret_cast<const uint4*>(t.in)[row * t.row_packets + column];
      if (t.add_residual) {
        residual = reinterpret_cast<const uint4*>(t.residual)[row * t.row_packets + column];
      }
    }
  };
  const auto send = [&](int64_t row) {
    if (has_packet && !call.has_failed()) {
      for (int i = 0; i < num_peers; ++i) {
        SendPacket(call.To(call.PeerAt(i), packets) + row * t.row_packets + column, own);
      }
    }
  };
  int64_t row = blockIdx.y;
  load(row);
  send(row);
  call.TakeTicket();
  for (int turn = 0; row < t.rows; ++turn) {
    uint4 value = zeros;
    if (has_packet) {
      PacketSum sum;
      for (int i = 0; i < num_peers; ++i) {
        if (i == view.rank) {
          sum.Add(own);
        }
        sum.Add(call.Receive(call.From(i, packets) + row * t.row_packets + column, i));
      }
      if (view.rank == num_peers) {
        sum.Add(own);
      }
      value = sum.Rounded();
      if (t.add_residual) {
        value = AddResidual(value, residual);
      }
    }
    const int64_t next = row + gridDim.y;
    if (next < t.rows) {
      load(next);
      send(next);
    }
    float total = BlockTotal(SumOfSquares(value), warps[turn % 2]);
    if (cluster > 1) {
      float(&of_blocks)[kMaxCluster] = blocks[turn % 2];
      if (turn == 0) {
        WaitForCluster();
      }
      if (static_cast<int>(threadIdx.x) < cluster) {
        StoreInBlock(&of_blocks[in_cluster], static_cast<int>(threadIdx.x), total);
      }
      ArriveAtCluster();
      WaitForCluster();
      total = 0;
      for (int block = 0; block < cluster; ++block) {
        total += of_blocks[block];
      }
    }
    const float scale = rsqrtf(total * t.inverse + t.epsilon);
    if (has_packet) {
      const int64_t at = row * t.row_packets + column;
      reinterpret_cast<uint4*>(t.out)[at] = Normed(value, gain, scale);
      reinterpret_cast<uint4*>(t.residual)[at] = value;
      for (int i = 0; i < num_peers; ++i) {
        EmptyPacket(call.From(i, packets) + at);
      }
    }
    row = next;
  }
  call.End();
}

// Blocks of a row: enough that a thread has one packet, and more while rows are few.
int ClusterFor(int row_packets, int asked) {
  int device = 0;
  int major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      major < 9) {
    return 1;
  }
  int cluster = asked;
  while (cluster < kMaxCluster && row_packets > cluster * kMaxNormThreads) {
    cluster *= 2;
  }
  return cluster;
}

}  // namespace

absl::Status CheckAllReduceNorm(const NormShape& shape, int64_t region_bytes, int num_ranks) {
  if (shape.parts != 1 || shape.stride != shape.size || shape.offset != 0 || shape.size < 1 ||
      shape.rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("all-reduce with norm: rows=", shape.rows, " size=", shape.size,
                     " stride=", shape.stride, " parts=", shape.parts, ": whole rows are needed"));
  }
  const int64_t most = int64_t{8} * kMaxNormThreads * ClusterFor(kMaxCluster * kMaxNormThreads, 1);
  if (shape.size % 8 != 0 || shape.size > most) {
    return absl::UnimplementedError(absl::StrCat("all-reduce with norm of rows of ", shape.size,
                                                 ": a multiple of 8, at most ", most));
  }
  if (shape.rows * shape.size > OneShotMaxElements(region_bytes, num_ranks)) {
    return absl::UnimplementedError(
        absl::StrCat("all-reduce with norm of ", shape.rows * shape.size, " elements: a region of ",
                     region_bytes, " bytes takes ", OneShotMaxElements(region_bytes, num_ranks)));
  }
  return absl::OkStatus();
}

absl::Status LaunchAllReduceNorm(const PeerView& view, const NormShape& shape,
                                 const __nv_bfloat16* in, __nv_bfloat16* residual,
                                 const __nv_bfloat16* gain, __nv_bfloat16* out, int asked_cluster,
                                 cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckAllReduceNorm(shape, view.region_bytes, view.num_ranks));
  if (view.num_ranks < 2 || view.num_ranks > kMaxPeerRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("all-reduce with norm of ", view.num_ranks, " ranks: 2 to ", kMaxPeerRanks));
  }
  if (shape.rows == 0) {
    return absl::OkStatus();
  }
  const int row_packets = static_cast<int>(shape.size / 8);
  const int cluster = ClusterFor(row_packets, asked_cluster > 0 ? asked_cluster : 4);
  const int share = (row_packets + cluster - 1) / cluster;
  const NormTensors tensors{.in = in,
                            .residual = residual,
                            .gain = gain,
                            .out = out,
                            .rows = shape.rows,
                            .row_packets = row_packets,
                            .share = share,
                            .inverse = 1.0f / static_cast<float>(shape.size),
                            .epsilon = static_cast<float>(shape.epsilon),
                            .add_residual = shape.add_residual};
  return LaunchCall("all_reduce with rms_norm",
                    view.num_ranks == 2 ? AllReduceNormKernel<2> : AllReduceNormKernel<0>,
                    shape.rows, cluster, (share + 31) / 32 * 32, stream, view, tensors);
}

}  // namespace lastflop
