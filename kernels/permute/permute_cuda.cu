#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/permute/permute_cuda.h"
#include "kernels/permute/permute_few.cuh"

namespace lastflop {
namespace {

using permute::kFewSlots;
using permute::kMostExpertThreads;
using permute::PermuteArguments;
using permute::PermuteFewKernel;

constexpr int kWarps = 32;
constexpr int kThreads = kWarps * 32;
constexpr int kMaxRounds = 4;                       // Slots of a thread.
constexpr int kChunkSlots = kThreads * kMaxRounds;  // Slots of a block.
constexpr int kMaxExperts = kThreads;               // A thread scans one.
constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

// Shared memory of a block: per warp and expert a count, then where the warp's pairs begin among
// the block's; and where the block's pairs of an expert begin.
struct Shared {
  int* begin;         // [num_experts]
  uint16_t* of_warp;  // [kWarps][num_experts]
};

__device__ inline Shared SharedOf(unsigned char* memory, int num_experts) {
  return {reinterpret_cast<int*>(memory), reinterpret_cast<uint16_t*>(memory + 4 * num_experts)};
}

int64_t SharedBytes(int64_t num_experts) { return num_experts * (4 + 2 * kWarps); }

// Behind it, where one block has all slots: what is written by pair, in the order of pairs. Written
// to global memory slot by slot, every word would take a sector of its own.
struct Staged {
  float* weight;   // [kChunkSlots], by slot.
  uint16_t* slot;  // [kChunkSlots], of a pair.
};

__device__ inline Staged StagedOf(unsigned char* memory) {
  return {reinterpret_cast<float*>(memory), reinterpret_cast<uint16_t*>(memory + 4 * kChunkSlots)};
}

constexpr int64_t kStagedBytes = 6 * kChunkSlots;
static_assert(kChunkSlots <= 65536);

// Slots of a thread: warps of a block take runs of rounds * 32 slots, so that a stable order needs
// only counts of warps.
struct Slots {
  int rounds;
  int first;               // Slot of lane 0 in round 0.
  int expert[kMaxRounds];  // -1: another rank's, or none.
  int before[kMaxRounds];  // Pairs of the expert earlier in the warp's run.
};

// Lanes with the same expert; `bits` are as many as tell experts apart. By ballots: on the H200
// match.any made the permutation 0.4 us faster up to 512 slots, 1.1 us slower with 2048 and 4 us
// slower with 8192.
__device__ inline unsigned int LanesOfExpert(int expert, int bits) {
  unsigned int same = __ballot_sync(kAllLanes, expert >= 0);
  same = expert >= 0 ? same : ~same;
  for (int b = 0; b < bits; ++b) {
    const bool is_set = (expert >> b & 1) != 0;
    const unsigned int votes = __ballot_sync(kAllLanes, is_set);
    same &= is_set ? votes : ~votes;
  }
  return same;
}

// Counts the block's chunk [begin, end). Afterwards of_warp holds, for each expert, the number of
// its pairs in earlier warps. Returns the block's count of expert threadIdx.x.
__device__ inline int CountChunk(const PermuteArguments& p, int begin, int end,
                                 const Shared& shared, Slots& slots) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_experts = p.pairs.num_local_experts;
  auto* counters = reinterpret_cast<uint32_t*>(shared.of_warp);
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * num_experts / 2; i += kThreads) {
    counters[i] = 0;
  }
  slots.rounds = (end - begin + kThreads - 1) / kThreads;
  slots.first = begin + warp * slots.rounds * 32;
#pragma unroll
  for (int r = 0; r < kMaxRounds; ++r) {
    const int slot = slots.first + r * 32 + lane;
    slots.expert[r] = -1;
    if (r < slots.rounds && slot < end) {
      const int expert = p.expert_ids[slot] - p.first_expert;
      slots.expert[r] =
          p.expert_ids[slot] >= 0 && expert >= 0 && expert < num_experts ? expert : -1;
    }
  }
  __syncthreads();
  uint16_t* own = shared.of_warp + warp * num_experts;
  const int bits = 32 - __clz(num_experts);
#pragma unroll
  for (int r = 0; r < kMaxRounds; ++r) {
    if (r < slots.rounds) {
      const int expert = slots.expert[r];
      const unsigned int same = LanesOfExpert(expert, bits);
      const int rank = __popc(same & ((1u << lane) - 1u));
      const int seen = expert >= 0 ? own[expert] : 0;
      __syncwarp();
      if (expert >= 0 && rank == 0) {
        own[expert] = static_cast<uint16_t>(seen + __popc(same));
      }
      __syncwarp();
      slots.before[r] = seen + rank;
    }
  }
  __syncthreads();
  int total = 0;
  if (const int expert = static_cast<int>(threadIdx.x); expert < num_experts) {
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) {
      const int count = shared.of_warp[w * num_experts + expert];
      shared.of_warp[w * num_experts + expert] = static_cast<uint16_t>(total);
      total += count;
    }
  }
  return total;
}

// Sum of `value` over the threads before this one.
__device__ inline int64_t ExclusiveSum(int64_t value) {
  __shared__ int64_t warp_sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int64_t left = __shfl_up_sync(kAllLanes, sum, step);
    sum += lane >= step ? left : 0;
  }
  if (lane == 31) {
    warp_sums[warp] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int64_t of_warps = warp_sums[lane];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int64_t left = __shfl_up_sync(kAllLanes, of_warps, step);
      of_warps += lane >= step ? left : 0;
    }
    warp_sums[lane] = of_warps;
  }
  __syncthreads();
  return sum - value + (warp > 0 ? warp_sums[warp - 1] : 0);
}

// Offsets and tiles from the count of expert threadIdx.x. Returns the expert's first pair.
__device__ inline int ScanExperts(const CudaPairs& pairs, int count) {
  const int expert = static_cast<int>(threadIdx.x);
  const int tiles = (count + pairs.tile_tokens - 1) / pairs.tile_tokens;
  const int64_t before = ExclusiveSum(static_cast<int64_t>(count) << 32 | tiles);
  const int first_pair = static_cast<int>(before >> 32);
  const int first_tile = static_cast<int>(before & 0xFFFFFFFF);
  const int last = pairs.num_local_experts - 1;
  if (expert <= last) {
    pairs.offsets[expert] = first_pair;
    pairs.tile_prefix[expert] = first_tile;
    for (int t = 0; t < tiles; ++t) {
      pairs.tiles[first_tile + t] = {.expert = expert,
                                     .begin = first_pair + t * pairs.tile_tokens,
                                     .count = min(pairs.tile_tokens, count - t * pairs.tile_tokens),
                                     .first_tile = first_tile};
    }
    if (expert == last) {
      pairs.offsets[expert + 1] = first_pair + count;
      pairs.tile_prefix[expert + 1] = first_tile + tiles;
      *pairs.num_tiles = first_tile + tiles;
    }
  }
  return first_pair;
}

// Calls put(pair, slot) for the pairs of the block's slots, and writes the slots' pairs: begin
// holds each expert's first pair of the block.
template <typename Put>
__device__ inline void PlaceSlots(const PermuteArguments& p, int end, const Shared& shared,
                                  const Slots& slots, const Put& put) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < kMaxRounds; ++r) {
    const int slot = slots.first + r * 32 + lane;
    if (r < slots.rounds && slot < end) {
      const int expert = slots.expert[r];
      int pair = -1;
      if (expert >= 0) {
        pair = shared.begin[expert] + slots.before[r] +
               shared.of_warp[warp * p.pairs.num_local_experts + expert];
        put(pair, slot);
      }
      p.pairs.pair_of[slot] = pair;
    }
  }
}

// All in one block, for up to kChunkSlots slots. `table_bytes`: SharedBytes.
__global__ void __launch_bounds__(kThreads)
    PermuteKernel(const PermuteArguments p, int table_bytes) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Shared shared = SharedOf(memory, p.pairs.num_local_experts);
  const Staged staged = StagedOf(memory + table_bytes);
  WaitForEarlierKernels();
  LetNextKernelStart();
  for (int slot = static_cast<int>(threadIdx.x); slot < p.num_slots; slot += kThreads) {
    staged.weight[slot] = p.weights[slot];
  }
  Slots slots;
  const int count = CountChunk(p, 0, p.num_slots, shared, slots);
  const int first_pair = ScanExperts(p.pairs, count);
  const int last = p.pairs.num_local_experts - 1;
  __shared__ int num_pairs;
  if (static_cast<int>(threadIdx.x) <= last) {
    shared.begin[threadIdx.x] = first_pair;
    if (static_cast<int>(threadIdx.x) == last) {
      num_pairs = first_pair + count;
    }
  }
  __syncthreads();
  PlaceSlots(p, p.num_slots, shared, slots,
             [&](int pair, int slot) { staged.slot[pair] = static_cast<uint16_t>(slot); });
  __syncthreads();
  for (int pair = static_cast<int>(threadIdx.x); pair < num_pairs; pair += kThreads) {
    const int slot = staged.slot[pair];
    p.pairs.token[pair] = slot / p.pairs.top_k;
    p.pairs.weight[pair] = staged.weight[slot];
  }
}

// Three launches, for more: counts[chunk][expert], ...
__global__ void __launch_bounds__(kThreads) CountKernel(const PermuteArguments p) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  extern __shared__ __align__(16) unsigned char memory[];
  const Shared shared = SharedOf(memory, p.pairs.num_local_experts);
  const int begin = static_cast<int>(blockIdx.x) * kChunkSlots;
  Slots slots;
  const int count = CountChunk(p, begin, min(begin + kChunkSlots, p.num_slots), shared, slots);
  if (static_cast<int>(threadIdx.x) < p.pairs.num_local_experts) {
    p.pairs.scratch[static_cast<int>(blockIdx.x) * p.pairs.num_local_experts + threadIdx.x] = count;
  }
}

// ... which become the pairs of the expert in earlier chunks, ...
__global__ void __launch_bounds__(kThreads) ScanKernel(const CudaPairs pairs, int num_chunks) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int expert = static_cast<int>(threadIdx.x);
  const int num_experts = pairs.num_local_experts;
  int total = 0;
  if (expert < num_experts) {
#pragma unroll 8
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const int count = pairs.scratch[chunk * num_experts + expert];
      pairs.scratch[chunk * num_experts + expert] = total;
      total += count;
    }
  }
  ScanExperts(pairs, total);
}

// ... and the pairs, counted once more.
__global__ void __launch_bounds__(kThreads) WriteKernel(const PermuteArguments p) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  extern __shared__ __align__(16) unsigned char memory[];
  const int num_experts = p.pairs.num_local_experts;
  const Shared shared = SharedOf(memory, num_experts);
  const int begin = static_cast<int>(blockIdx.x) * kChunkSlots;
  const int end = min(begin + kChunkSlots, p.num_slots);
  Slots slots;
  CountChunk(p, begin, end, shared, slots);
  if (const int expert = static_cast<int>(threadIdx.x); expert < num_experts) {
    shared.begin[expert] = p.pairs.offsets[expert] +
                           p.pairs.scratch[static_cast<int>(blockIdx.x) * num_experts + expert];
  }
  __syncthreads();
  PlaceSlots(p, end, shared, slots, [&](int pair, int slot) {
    p.pairs.token[pair] = slot / p.pairs.top_k;
    p.pairs.weight[pair] = p.weights[slot];
  });
}

int64_t NumSlots(const PermuteShape& shape) { return shape.num_tokens * shape.top_k; }
int64_t NumChunks(const PermuteShape& shape) {
  return (NumSlots(shape) + kChunkSlots - 1) / kChunkSlots;
}
int64_t MaxTiles(const PermuteShape& shape, int tile_tokens) {
  return std::min(NumSlots(shape), NumSlots(shape) / tile_tokens + shape.num_local_experts);
}

// Hands out aligned parts of one block of memory.
class Place {
 public:
  explicit Place(void* memory) : base_(static_cast<unsigned char*>(memory)) {}
  template <typename T>
  T* Take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return part;
  }
  int64_t bytes() const { return bytes_; }

 private:
  unsigned char* base_;
  int64_t bytes_ = 0;
};

CudaPairs PlaceIn(const PermuteShape& shape, int tile_tokens, Place& place) {
  const int64_t experts = shape.num_local_experts;
  const int64_t slots = NumSlots(shape);
  CudaPairs pairs;
  pairs.max_tiles = MaxTiles(shape, tile_tokens);
  pairs.num_slots = slots;
  pairs.mean_pairs =
      (slots * experts + shape.num_experts - 1) / std::max<int64_t>(1, shape.num_experts);
  pairs.num_local_experts = static_cast<int>(experts);
  pairs.top_k = static_cast<int>(shape.top_k);
  pairs.tile_tokens = tile_tokens;
  pairs.offsets = place.Take<int32_t>(experts + 1);
  pairs.token = place.Take<int32_t>(slots);
  pairs.weight = place.Take<float>(slots);
  pairs.pair_of = place.Take<int32_t>(slots);
  pairs.num_tiles = place.Take<int32_t>(1);
  pairs.tiles = place.Take<CudaTile>(pairs.max_tiles);
  pairs.tile_prefix = place.Take<int32_t>(experts + 1);
  pairs.padded_row = place.Take<int32_t>(slots);
  pairs.scratch = place.Take<int32_t>(NumChunks(shape) > 1 ? NumChunks(shape) * experts : 1);
  return pairs;
}

}  // namespace

int PairTileTokens(const PermuteShape& shape, const WeightStorage& weights) {
  // Mean pairs of an expert, counted over the model's experts: a rank's share of them does not
  // change it. Limits from H200 timings of every tile (docs/kernels/grouped_gemm.md): a wider tile
  // costs weights that are unpacked their instructions for tokens that are not there, and bf16,
  // which only waits for memory, nothing. Two tiles of 32 take 4-bit weights less than one of 64.
  const double mean = static_cast<double>(NumSlots(shape)) /
                      static_cast<double>(std::max<int64_t>(1, shape.num_experts));
  if (weights.format == WeightFormat::kBf16) {
    return mean <= 4 ? 8 : mean <= 8 ? 16 : mean <= 32 ? 32 : 64;
  }
  const int most = weights.format == WeightFormat::kFp8Block && mean > 32 ? 64 : 32;
  return mean <= 6 ? 8 : mean <= 14 ? 16 : most;
}

int64_t PairsBytes(const PermuteShape& shape, int tile_tokens) {
  Place place(nullptr);
  PlaceIn(shape, tile_tokens, place);
  return place.bytes();
}

CudaPairs PlacePairs(const PermuteShape& shape, int tile_tokens, void* memory) {
  Place place(memory);
  return PlaceIn(shape, tile_tokens, place);
}

absl::Status CheckPermuteCuda(const PermuteShape& shape) {
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.first_expert < 0 || shape.first_expert + shape.num_local_experts > shape.num_experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("permute: num_tokens=", shape.num_tokens, " top_k=", shape.top_k, " experts [",
                     shape.first_expert, ", ", shape.first_expert + shape.num_local_experts,
                     ") of ", shape.num_experts));
  }
  if (shape.num_local_experts > kMaxExperts) {
    return absl::UnimplementedError(absl::StrCat("permute: ", shape.num_local_experts,
                                                 " experts of a rank, the kernel scans up to ",
                                                 kMaxExperts));
  }
  if (NumSlots(shape) + kChunkSlots > INT32_MAX ||
      NumChunks(shape) * shape.num_local_experts > INT32_MAX) {
    return absl::UnimplementedError(absl::StrCat("permute: num_tokens=", shape.num_tokens,
                                                 " top_k=", shape.top_k,
                                                 " are more pairs than 32 bits count"));
  }
  return absl::OkStatus();
}

absl::Status LaunchPermute(const PermuteShape& shape, const int32_t* expert_ids,
                           const float* weights, const CudaPairs& pairs, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckPermuteCuda(shape));
  if (pairs.num_slots != NumSlots(shape) || pairs.num_local_experts != shape.num_local_experts ||
      pairs.tile_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("permute: pairs placed for ", pairs.num_slots,
                                                   " slots, the routing has ", NumSlots(shape)));
  }
  const PermuteArguments p = {.pairs = pairs,
                              .expert_ids = expert_ids,
                              .weights = weights,
                              .num_slots = static_cast<int>(pairs.num_slots),
                              .first_expert = static_cast<int>(shape.first_expert)};
  const int64_t table_bytes = SharedBytes((shape.num_local_experts + 1) / 2 * 2);
  const auto chunks = static_cast<unsigned int>(NumChunks(shape));
  const auto allow = [&](const void* kernel, int64_t shared_bytes) {
    return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes)),
                      "preparing permute");
  };
  if (pairs.num_slots <= kFewSlots) {  // Also without slots: offsets and tiles are written.
    const int expert_threads =
        std::min(kMostExpertThreads, (static_cast<int>(shape.num_local_experts) / 32 + 1) * 32);
    return LaunchOverlapping("permute", PermuteFewKernel, dim3(1), kFewSlots + expert_threads, 0,
                             stream, p);
  }
  if (chunks <= 1) {
    const int64_t bytes = table_bytes + kStagedBytes;
    LASTFLOP_RETURN_IF_ERROR(allow(reinterpret_cast<const void*>(PermuteKernel), bytes));
    return LaunchOverlapping("permute", PermuteKernel, dim3(1), kThreads, bytes, stream, p,
                             static_cast<int>(table_bytes));
  }
  LASTFLOP_RETURN_IF_ERROR(allow(reinterpret_cast<const void*>(CountKernel), table_bytes));
  LASTFLOP_RETURN_IF_ERROR(allow(reinterpret_cast<const void*>(WriteKernel), table_bytes));
  LASTFLOP_RETURN_IF_ERROR(LaunchOverlapping("permute count", CountKernel, dim3(chunks), kThreads,
                                             table_bytes, stream, p));
  LASTFLOP_RETURN_IF_ERROR(LaunchOverlapping("permute scan", ScanKernel, dim3(1), kThreads, 0,
                                             stream, pairs, static_cast<int>(chunks)));
  return LaunchOverlapping("permute write", WriteKernel, dim3(chunks), kThreads, table_bytes,
                           stream, p);
}

}  // namespace lastflop
