#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "collectives/cuda/peer_all_reduce_cuda.h"
#include "gpu/cuda_status.h"
#include "gpu/dependent_launch.cuh"

// Packets between GPUs: how they are sent, waited for and emptied. Device code only.
namespace lastflop {

// A word of a packet that is not here yet: two NaNs that are sent as two others.
inline constexpr uint32_t kEmptyWord = 0xFFFFFFFFu;

// %globaltimer: ns, of this GPU.
__device__ inline uint64_t GlobalNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

// ld.volatile and st.volatile: of system scope, past the L1, 16 bytes in one access. Words are
// looked at one by one, so that nothing rests on the access being whole.
__device__ inline uint4 LoadPacket(const uint4* at) {
  uint4 packet;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(at)
               : "memory");
  return packet;
}
__device__ inline uint32_t Sendable(uint32_t word) {
  return word == kEmptyWord ? 0x7FFFFFFFu : word;
}
__device__ inline void SendPacket(uint4* to, const uint4& packet) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(Sendable(packet.x)), "r"(Sendable(packet.y)), "r"(Sendable(packet.z)),
               "r"(Sendable(packet.w))
               : "memory");
}
__device__ inline void EmptyPacket(uint4* at) {
  *at = make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord);
}
__device__ inline bool IsHere(const uint4& packet) {
  return packet.x != kEmptyWord && packet.y != kEmptyWord && packet.z != kEmptyWord &&
         packet.w != kEmptyWord;
}

// Eight values of a tensor of `elements`; zeros past its end.
__device__ inline uint4 LoadValues(const __nv_bfloat16* tensor, int64_t packet, int64_t elements) {
  const int64_t first = packet * 8;
  if (first + 8 <= elements) {
    return *reinterpret_cast<const uint4*>(tensor + first);
  }
  uint32_t words[4] = {0, 0, 0, 0};
  const auto* values = reinterpret_cast<const uint16_t*>(tensor);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (first + i < elements) {
      words[i / 2] |= static_cast<uint32_t>(values[first + i]) << (16 * (i % 2));
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ inline void StoreValues(__nv_bfloat16* tensor, int64_t packet, int64_t elements,
                                   const uint4& value) {
  const int64_t first = packet * 8;
  if (first + 8 <= elements) {
    *reinterpret_cast<uint4*>(tensor + first) = value;
    return;
  }
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
  auto* values = reinterpret_cast<uint16_t*>(tensor);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (first + i < elements) {
      values[first + i] = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
    }
  }
}

__device__ inline float2 Unpack(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
}
__device__ inline uint32_t Pack(float2 pair) {
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair.x, pair.y);
  return *reinterpret_cast<const uint32_t*>(&rounded);
}

// A packet's sum in fp32, in the order of Add(). It starts at -0, which changes nothing.
struct PacketSum {
  float2 pairs[4] = {{-0.0f, -0.0f}, {-0.0f, -0.0f}, {-0.0f, -0.0f}, {-0.0f, -0.0f}};
  __device__ void Add(const uint4& packet) {
    const uint32_t words[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Unpack(words[i]);
      pairs[i].x += pair.x;
      pairs[i].y += pair.y;
    }
  }
  __device__ uint4 Rounded() const {
    return make_uint4(Pack(pairs[0]), Pack(pairs[1]), Pack(pairs[2]), Pack(pairs[3]));
  }
};

// One call on one thread: its parity, its waiting, its end. kRanks 0: as many as the view has.
template <int kRanks>
class PeerCall {
 public:
  // After WaitForEarlierKernels().
  __device__ explicit PeerCall(const PeerView& view) : view_(view) {
    uint32_t failed;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(epoch_), "=r"(failed)
                 : "l"(view.control)
                 : "memory");
    has_failed_ = failed != 0;
    if (view.stamps && IsStamper()) {
      begin_ns_ = GlobalNs();
      for (int i = 0; i < num_ranks() - 1; ++i) {
        asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(Arrivals(PeerAt(i)) + view.rank),
                     "r"(epoch_ + 1)
                     : "memory");
      }
    }
  }

  __device__ bool has_failed() const { return has_failed_; }
  __device__ int num_ranks() const { return kRanks > 0 ? kRanks : view_.num_ranks; }

  // The n - 1 others, 0 to n - 2, in rank order.
  __device__ int PeerAt(int i) const { return i < view_.rank ? i : i + 1; }
  // Where packets from this rank go in `peer`'s region, and where those of peer i lie in the own.
  __device__ uint4* To(int peer, int64_t slot_packets) const {
    return Region(peer) + (view_.rank < peer ? view_.rank : view_.rank - 1) * slot_packets;
  }
  __device__ uint4* From(int i, int64_t slot_packets) const {
    return Region(view_.rank) + i * slot_packets;
  }

  // Once, by all threads of the block, after their first packets are on their way: the block has
  // read the epoch.
  __device__ void TakeTicket() {
    __syncthreads();
    if (threadIdx.x == 0) {
      ticket_ = atomicAdd(&view_.control->ticket, 1u);
      if (view_.stamps && IsStamper()) {
        AwaitArrivals();
      }
    }
  }

  // Waits for a packet of peer i. Zeros when it does not come: the call has failed.
  __device__ uint4 Receive(const uint4* at, int i) {
    int looks = 0;
    while (true) {
      const uint4 packet = LoadPacket(at);
      if (IsHere(packet)) {
        return packet;
      }
      if (has_failed_ || (++looks % kLooksBetweenChecks == 0 && GiveUp(PeerAt(i)))) {
        return make_uint4(0, 0, 0, 0);
      }
    }
  }

  // Waits for a packet of peer i, or for the word that says that it does not come: false then, and
  // where the call has failed.
  __device__ bool ReceiveUnless(const uint4* at, const uint4* word, int i, uint4& packet) {
    int looks = 0;
    while (true) {
      packet = LoadPacket(at);
      const uint4 not_coming = LoadPacket(word);  // Under way together.
      if (IsHere(packet)) {
        return true;
      }
      if (IsHere(not_coming) || has_failed_ ||
          (++looks % kLooksBetweenChecks == 0 && GiveUp(PeerAt(i)))) {
        return false;
      }
    }
  }

  // Once, by all threads, after their last packet.
  __device__ void End() {
    if (threadIdx.x != 0) {
      return;
    }
    PeerControl* const control = view_.control;
    if (ticket_ == gridDim.x * gridDim.y - 1) {
      control->ticket = 0;
      control->epoch = epoch_ + 1;
    }
    if (view_.stamps && IsStamper()) {
      const uint64_t wait_ns = arrived_ns_ - begin_ns_;
      control->least_wait_ns =
          control->stamped_calls == 0 ? wait_ns : min(control->least_wait_ns, wait_ns);
      control->stamped_calls += 1;
      control->wait_ns += wait_ns;
      control->total_ns += GlobalNs() - begin_ns_;
    }
  }

 private:
  static constexpr int kLooksBetweenChecks = 512;  // About 0.2 ms.

  __device__ uint4* Region(int rank) const {
    return reinterpret_cast<uint4*>(view_.regions[rank] + (epoch_ & 1) * view_.region_bytes);
  }

  // The one thread of a call that stamps.
  __device__ static bool IsStamper() {
    return threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0;
  }

  // Behind the packets of `rank`'s region: by rank, the last stamped call that it came to. A word
  // of its own, since packets of a long message queue behind each other on the link.
  __device__ uint32_t* Arrivals(int rank) const {
    return reinterpret_cast<uint32_t*>(view_.regions[rank] + 2 * view_.region_bytes);
  }

  __device__ void AwaitArrivals() {
    for (int i = 0; i < num_ranks() - 1; ++i) {
      const uint32_t* const at = Arrivals(view_.rank) + PeerAt(i);
      int looks = 0;
      while (!has_failed_) {
        uint32_t arrived;
        asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(arrived) : "l"(at) : "memory");
        if (static_cast<int32_t>(arrived - (epoch_ + 1)) >= 0 ||
            (++looks % kLooksBetweenChecks == 0 && GiveUp(PeerAt(i)))) {
          break;
        }
      }
    }
    arrived_ns_ = GlobalNs();
  }

  __device__ bool GiveUp(int peer) {
    const uint64_t now = GlobalNs();
    if (waiting_since_ns_ == 0) {
      waiting_since_ns_ = now;
    }
    volatile PeerControl* const control = view_.control;
    volatile PeerReport* const report = view_.report;
    if (control->failed != 0) {
      has_failed_ = true;
    } else if (report->abort != 0 || now - waiting_since_ns_ > view_.timeout_ns) {
      has_failed_ = true;
      if (atomicCAS(&view_.control->failed, 0u, 1u) == 0) {
        report->epoch = epoch_;
        __threadfence_system();
        report->failed = static_cast<uint32_t>(peer) + 1;
      }
    }
    return has_failed_;
  }

  const PeerView& view_;
  uint32_t epoch_ = 0;
  uint32_t ticket_ = 0;
  bool has_failed_ = false;
  uint64_t waiting_since_ns_ = 0;
  uint64_t begin_ns_ = 0;
  uint64_t arrived_ns_ = 0;
};

// Launches a kernel that waits for earlier grids itself: `rows` (at most: as many as fit at once)
// rows of `columns` blocks, which share a cluster where there are several (from sm_90 on).
template <typename... Parameters, typename... Arguments>
absl::Status LaunchCall(const char* name, void (*kernel)(Parameters...), int64_t rows, int columns,
                        int threads, cudaStream_t stream, Arguments&&... arguments) {
  int device = 0;
  int major = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), name);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), name);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned int>(columns);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned int>(columns), static_cast<unsigned int>(rows));
  config.blockDim = dim3(static_cast<unsigned int>(threads));
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = major < 9 ? 0 : columns > 1 ? 2 : 1;
  int at_once = 0;  // Rows.
  if (columns > 1) {
    config.gridDim.y = 1;
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveClusters(&at_once, kernel, &config), name);
  } else {
    int num_sms = 0;
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device), name);
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel, threads, 0), name);
    at_once *= num_sms;
  }
  config.gridDim.y = static_cast<unsigned int>(rows < at_once ? rows : at_once);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...), name);
  return LastLaunchStatus(name);
}

}  // namespace lastflop
