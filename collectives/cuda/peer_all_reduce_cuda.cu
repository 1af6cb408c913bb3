#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"
#include "collectives/cuda/peer_packet.cuh"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int kMaxThreads = 1024;

int64_t PacketsOf(int64_t elements) { return (elements + 7) / 8; }

// A thread sends its next packet before it waits for this one, so that a long message is on the
// wire while the sums are made. One packet at a time: waiting for several together was slower at
// every size (docs/kernels/all_reduce.md).
template <int kRanks>
__global__ void __launch_bounds__(kMaxThreads, 1)
    OneShotKernel(const __grid_constant__ PeerView view, const __nv_bfloat16* in,
                  __nv_bfloat16* out, int64_t elements, int64_t packets) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  PeerCall<kRanks> call(view);
  const int num_peers = call.num_ranks() - 1;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.x;
  int64_t packet = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const auto load = [&](int64_t at) {
    return at < packets ? LoadValues(in, at, elements) : make_uint4(0, 0, 0, 0);
  };
  const auto send = [&](int64_t at, const uint4& values) {
    if (at < packets) {
      for (int i = 0; i < num_peers; ++i) {
        SendPacket(call.To(call.PeerAt(i), packets) + at, values);
      }
    }
  };
  uint4 own = load(packet);  // Under way together with what `call` has asked for.
  if (call.has_failed()) {
    return;
  }
  send(packet, own);
  call.TakeTicket();
  for (; packet < packets; packet += stride) {
    const uint4 next = load(packet + stride);
    send(packet + stride, next);
    PacketSum sum;
    for (int i = 0; i < num_peers; ++i) {
      if (i == view.rank) {
        sum.Add(own);
      }
      sum.Add(call.Receive(call.From(i, packets) + packet, i));
    }
    if (view.rank == num_peers) {
      sum.Add(own);
    }
    StoreValues(out, packet, elements, sum.Rounded());
    for (int i = 0; i < num_peers; ++i) {
      EmptyPacket(call.From(i, packets) + packet);
    }
    own = next;
  }
  call.End();
}

// Rank r sums the packets [r * packets / ranks, (r + 1) * packets / ranks).
struct Shares {
  int64_t packets = 0;
  int64_t ranks = 1;
  __host__ __device__ int64_t Begin(int64_t rank) const { return rank * packets / ranks; }
  __host__ __device__ int64_t Size(int64_t rank) const { return Begin(rank + 1) - Begin(rank); }
  __host__ __device__ int64_t Largest() const { return (packets + ranks - 1) / ranks; }
};

// Contributions lie in the region's first half, sums in its second. A step's contributions go out
// before the sums of the step before it are made, and those before the sums of the others are
// waited for.
template <int kRanks>
__global__ void __launch_bounds__(kMaxThreads, 1)
    TwoShotKernel(const __grid_constant__ PeerView view, const __nv_bfloat16* in,
                  __nv_bfloat16* out, int64_t elements, Shares shares) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  PeerCall<kRanks> call(view);
  if (call.has_failed()) {
    return;
  }
  const int num_peers = call.num_ranks() - 1;
  const int64_t slot = shares.Largest();
  const int64_t sums_begin = num_peers * slot;
  const int64_t own_begin = shares.Begin(view.rank);
  const int64_t own_size = shares.Size(view.rank);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const int64_t num_steps = (slot + stride - 1) / stride;
  const auto contribute = [&](int64_t at) {
    for (int i = 0; i < num_peers; ++i) {
      const int peer = call.PeerAt(i);
      if (at < shares.Size(peer)) {
        SendPacket(call.To(peer, slot) + at, LoadValues(in, shares.Begin(peer) + at, elements));
      }
    }
  };
  const auto sum_up = [&](int64_t at) {
    if (at >= own_size) {
      return;
    }
    const uint4 own = LoadValues(in, own_begin + at, elements);
    PacketSum sum;
    for (int i = 0; i < num_peers; ++i) {
      if (i == view.rank) {
        sum.Add(own);
      }
      sum.Add(call.Receive(call.From(i, slot) + at, i));
    }
    if (view.rank == num_peers) {
      sum.Add(own);
    }
    const uint4 rounded = sum.Rounded();
    for (int i = 0; i < num_peers; ++i) {
      SendPacket(call.To(call.PeerAt(i), slot) + sums_begin + at, rounded);
    }
    StoreValues(out, own_begin + at, elements, rounded);
    for (int i = 0; i < num_peers; ++i) {
      EmptyPacket(call.From(i, slot) + at);
    }
  };
  const auto collect = [&](int64_t at) {
    for (int i = 0; i < num_peers; ++i) {
      const int peer = call.PeerAt(i);
      if (at < shares.Size(peer)) {
        uint4* const packet = call.From(i, slot) + sums_begin + at;
        StoreValues(out, shares.Begin(peer) + at, elements, call.Receive(packet, i));
        EmptyPacket(packet);
      }
    }
  };
  contribute(thread);
  call.TakeTicket();
  for (int64_t step = 1; step <= num_steps + 1; ++step) {
    if (step < num_steps) {
      contribute(thread + step * stride);
    }
    if (step <= num_steps) {
      sum_up(thread + (step - 1) * stride);
    }
    if (step >= 2) {
      collect(thread + (step - 2) * stride);
    }
  }
  call.End();
}

absl::Status Validate(const PeerView& view, int64_t elements, int64_t most, int threads_per_block) {
  if (view.num_ranks < 2 || view.num_ranks > kMaxPeerRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer all-reduce of ", view.num_ranks, " ranks: 2 to ", kMaxPeerRanks));
  }
  if (elements < 0 || elements > most) {
    return absl::InvalidArgumentError(absl::StrCat("peer all-reduce of ", elements,
                                                   " elements: a region of ", view.region_bytes,
                                                   " bytes takes 0 to ", most));
  }
  if (threads_per_block % 32 != 0 || threads_per_block < 32 || threads_per_block > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer all-reduce: threads_per_block=", threads_per_block,
                     ": a multiple of 32 up to ", kMaxThreads));
  }
  return absl::OkStatus();
}

int64_t BlocksFor(int64_t packets, int threads) { return (packets + threads - 1) / threads; }

}  // namespace

int64_t OneShotMaxElements(int64_t region_bytes, int num_ranks) {
  return region_bytes / kPacketBytes / std::max(1, num_ranks - 1) * 8;
}

int64_t TwoShotMaxElements(int64_t region_bytes, int num_ranks) {
  const int64_t slot = region_bytes / kPacketBytes / (2 * std::max(1, num_ranks - 1));
  return slot * num_ranks * 8;
}

absl::Status LaunchOneShotAllReduce(const PeerView& view, const __nv_bfloat16* in,
                                    __nv_bfloat16* out, int64_t elements, int threads_per_block,
                                    cudaStream_t stream) {
  const int64_t packets = PacketsOf(elements);
  // On two H200s blocks of 128 are best at 14 and 64 KiB, of 256 from 256 KiB to 8 MiB, and of 128
  // again from 16 MiB on, all within 2% (docs/kernels/all_reduce.md).
  const bool is_middle = packets > (8 << 10) && packets < (1 << 20);
  const int threads = threads_per_block > 0 ? threads_per_block : is_middle ? 256 : 128;
  LASTFLOP_RETURN_IF_ERROR(
      Validate(view, elements, OneShotMaxElements(view.region_bytes, view.num_ranks), threads));
  if (elements == 0) {
    return absl::OkStatus();
  }
  return LaunchCall(
      "all_reduce one_shot", view.num_ranks == 2 ? OneShotKernel<2> : OneShotKernel<0>,
      BlocksFor(packets, threads), 1, threads, stream, view, in, out, elements, packets);
}

absl::Status LaunchTwoShotAllReduce(const PeerView& view, const __nv_bfloat16* in,
                                    __nv_bfloat16* out, int64_t elements, int threads_per_block,
                                    cudaStream_t stream) {
  const Shares shares{.packets = PacketsOf(elements), .ranks = view.num_ranks};
  if (elements > 0 && shares.packets < view.num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("two_shot of ", elements,
                                                   " elements: ", view.num_ranks,
                                                   " ranks need a packet of 8 elements each"));
  }
  const int threads = threads_per_block > 0        ? threads_per_block
                      : shares.packets > (1 << 19) ? 512
                                                   : 128;
  LASTFLOP_RETURN_IF_ERROR(
      Validate(view, elements, TwoShotMaxElements(view.region_bytes, view.num_ranks), threads));
  if (elements == 0) {
    return absl::OkStatus();
  }
  return LaunchCall(
      "all_reduce two_shot", view.num_ranks == 2 ? TwoShotKernel<2> : TwoShotKernel<0>,
      BlocksFor(shares.Largest(), threads), 1, threads, stream, view, in, out, elements, shares);
}

}  // namespace lastflop
