#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/cuda/peer_all_to_all_cuda.h"
#include "collectives/cuda/peer_packet.cuh"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int kMaxThreads = 1024;
constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

// A rank's slot in another's region, in packets:
//   1                 "I am here": every call hears every peer, whatever the routing
//   items             dispatch only: "no row comes" of an item
//   count * record    rows; of dispatch each with its expert ids and weights behind it
// An item is what a block sends or receives at a time: `threads` packets of a token.
struct Exchange {
  int64_t first_token[kMaxPeerRanks + 1];
  int64_t first;    // Of the tokens of each rank, those from `first` on,
  int count;        // so many.
  int row_packets;  // hidden_size / 8
  int record;       // Packets of a token.
  int items_of_token;
  int top_k;
  int experts_per_rank;
  int64_t slot_packets;

  __host__ __device__ int64_t tokens_of(int rank) const {
    return first_token[rank + 1] - first_token[rank];
  }
};

// A thread's part of an item.
struct Part {
  int token;     // From `first` on.
  int packet;    // Of the token's record.
  bool is_used;  // The last item of a token may have fewer packets than threads.
};

__device__ inline Part PartOf(const Exchange& x, int item) {
  const int token = item / x.items_of_token;
  const int of_token = item - token * x.items_of_token;
  const int packet = of_token * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  return {token, packet, packet < x.record};
}

// Bit r: rank r owns one of the token's experts. All lanes of a warp ask together.
__device__ inline uint32_t RanksOf(const int32_t* expert_ids, const Exchange& x) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int id = lane < x.top_k ? expert_ids[lane] : -1;
  const uint32_t bit = id >= 0 ? 1u << (id / x.experts_per_rank) : 0;
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(kAllLanes, bit);
#else
  return bit;
#endif
}

// One thread tells every peer that this rank is here, and hears the same of each.
template <int kRanks>
class Greeting {
 public:
  __device__ Greeting(PeerCall<kRanks>& call, const Exchange& x) : call_(call), x_(x) {}

  __device__ void Send() {
    if (is_mine()) {
      for (int i = 0; i + 1 < call_.num_ranks(); ++i) {
        SendPacket(call_.To(call_.PeerAt(i), x_.slot_packets), make_uint4(1, 1, 1, 1));
      }
    }
  }
  __device__ void Receive() {
    if (is_mine()) {
      for (int i = 0; i + 1 < call_.num_ranks(); ++i) {
        uint4* const at = call_.From(i, x_.slot_packets);
        call_.Receive(at, i);
        EmptyPacket(at);
      }
    }
  }

 private:
  __device__ bool is_mine() const { return threadIdx.x == 0 && blockIdx.y == 0; }

  PeerCall<kRanks>& call_;
  const Exchange& x_;
};

// What a thread sends of an item, and to whom.
struct Outgoing {
  uint4 values = {0, 0, 0, 0};
  uint32_t ranks = 0;

  __device__ bool GoesTo(int rank) const { return (ranks >> rank & 1) != 0; }
};

// Packets of a token: its row, then two experts and their weights a packet.
__device__ inline uint4 LoadRecord(const DispatchTensors& t, const Exchange& x, int64_t token,
                                   int packet) {
  if (packet < x.row_packets) {
    return reinterpret_cast<const uint4*>(t.rows)[token * x.row_packets + packet];
  }
  const int k = 2 * (packet - x.row_packets);
  const int64_t at = token * x.top_k + k;
  const bool has_second = k + 1 < x.top_k;
  return make_uint4(static_cast<uint32_t>(t.expert_ids[at]), __float_as_uint(t.weights[at]),
                    static_cast<uint32_t>(has_second ? t.expert_ids[at + 1] : 0),
                    __float_as_uint(has_second ? t.weights[at + 1] : 0.0f));
}

// An id of -1 is sent as another number that is no expert's (Sendable).
__device__ inline int32_t ReceivedId(uint32_t word) {
  return word == 0x7FFFFFFFu ? -1 : static_cast<int32_t>(word);
}

__device__ inline void StoreRecord(const DispatchTensors& t, const Exchange& x, int64_t row,
                                   int packet, const uint4& values) {
  if (packet < x.row_packets) {
    reinterpret_cast<uint4*>(t.received)[row * x.row_packets + packet] = values;
    return;
  }
  const int k = 2 * (packet - x.row_packets);
  const int64_t at = row * x.top_k + k;
  t.received_ids[at] = ReceivedId(values.x);
  t.received_weights[at] = __uint_as_float(values.y);
  if (k + 1 < x.top_k) {
    t.received_ids[at + 1] = ReceivedId(values.z);
    t.received_weights[at + 1] = __uint_as_float(values.w);
  }
}

// Of a token that has no expert here.
__device__ inline void StoreNothing(const DispatchTensors& t, const Exchange& x, int64_t row,
                                    int packet) {
  if (packet >= x.row_packets) {
    const uint32_t none = 0xFFFFFFFFu;
    StoreRecord(t, x, row, packet, make_uint4(none, 0, none, 0));
  }
}

// As in one_shot a thread sends its next packet before it waits for this one. A row that comes is
// told by its packets, one that does not by a word for the block: neither waits for the other.
template <int kRanks>
__global__ void __launch_bounds__(kMaxThreads, 1)
    DispatchKernel(const __grid_constant__ PeerView view, const __grid_constant__ Exchange x,
                   const __grid_constant__ DispatchTensors t) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  PeerCall<kRanks> call(view);
  const int num_peers = call.num_ranks() - 1;
  const int num_blocks = static_cast<int>(gridDim.y);
  const int num_items = x.count * x.items_of_token;
  const int64_t own_tokens = x.tokens_of(view.rank) - x.first;
  Greeting<kRanks> greeting(call, x);
  const auto load = [&](int item) {
    const Part part = PartOf(x, item);
    const int64_t token = x.first + part.token;
    Outgoing own;
    if (part.token < own_tokens) {
      if (part.is_used) {
        own.values = LoadRecord(t, x, token, part.packet);
      }
      own.ranks = RanksOf(t.expert_ids + token * x.top_k, x);
    }
    return own;
  };
  const auto send = [&](int item, const Outgoing& own) {
    const Part part = PartOf(x, item);
    for (int i = 0; i < num_peers; ++i) {
      const int peer = call.PeerAt(i);
      uint4* const slot = call.To(peer, x.slot_packets) + 1;
      if (!own.GoesTo(peer)) {
        if (threadIdx.x == 0) {
          SendPacket(slot + item, make_uint4(1, 1, 1, 1));
        }
      } else if (part.is_used) {
        SendPacket(slot + num_items + static_cast<int64_t>(part.token) * x.record + part.packet,
                   own.values);
      }
    }
    if (part.is_used && part.token < own_tokens) {
      const int64_t row = x.first_token[view.rank] + x.first + part.token;
      if (own.GoesTo(view.rank)) {
        StoreRecord(t, x, row, part.packet, own.values);
      } else {
        StoreNothing(t, x, row, part.packet);
      }
    }
  };
  const auto receive = [&](int item) {
    const Part part = PartOf(x, item);
    uint32_t missing = 0;  // Peers that send no row; equal on all threads of the block.
    for (int i = 0; part.is_used && i < num_peers; ++i) {
      uint4* const slot = call.From(i, x.slot_packets) + 1;
      uint4* const at =
          slot + num_items + static_cast<int64_t>(part.token) * x.record + part.packet;
      const int peer = call.PeerAt(i);
      const int64_t row = x.first_token[peer] + x.first + part.token;
      uint4 values;
      if (call.ReceiveUnless(at, slot + item, i, values)) {
        StoreRecord(t, x, row, part.packet, values);
        EmptyPacket(at);
      } else {
        missing |= 1u << i;
        if (x.first + part.token < x.tokens_of(peer)) {
          StoreNothing(t, x, row, part.packet);
        }
      }
    }
    __syncthreads();  // All have seen the words that are emptied now.
    for (int i = 0; threadIdx.x == 0 && i < num_peers; ++i) {
      if ((missing >> i & 1) != 0) {
        EmptyPacket(call.From(i, x.slot_packets) + 1 + item);
      }
    }
  };
  int item = static_cast<int>(blockIdx.y);  // There are no more blocks than items.
  const Outgoing first = load(item);        // Under way together with what `call` has asked for.
  if (call.has_failed()) {
    return;
  }
  greeting.Send();
  send(item, first);
  call.TakeTicket();
  for (; item < num_items; item += num_blocks) {
    if (item + num_blocks < num_items) {
      send(item + num_blocks, load(item + num_blocks));
    }
    receive(item);
  }
  greeting.Receive();  // Not before the rows, which the others wait for.
  call.End();
}

__device__ inline uint4 PartialOf(const CombineTensors& t, const Exchange& x, int64_t row,
                                  int packet) {
  return reinterpret_cast<const uint4*>(t.partial)[row * x.row_packets + packet];
}

__device__ inline void StoreSum(const CombineTensors& t, const Exchange& x, int64_t token,
                                int packet, PacketSum& sum) {
  const int64_t at = token * x.row_packets + packet;
  if (t.shared != nullptr) {
    sum.Add(reinterpret_cast<const uint4*>(t.shared)[at]);
  }
  reinterpret_cast<uint4*>(t.out)[at] = sum.Rounded();
}

// Sender and receiver know from the same routing which rows travel.
template <int kRanks>
__global__ void __launch_bounds__(kMaxThreads, 1)
    CombineKernel(const __grid_constant__ PeerView view, const __grid_constant__ Exchange x,
                  const __grid_constant__ CombineTensors t) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  PeerCall<kRanks> call(view);
  const int num_peers = call.num_ranks() - 1;
  const int num_blocks = static_cast<int>(gridDim.y);
  const int num_items = x.count * x.items_of_token;
  const int64_t own_tokens = x.tokens_of(view.rank) - x.first;
  Greeting<kRanks> greeting(call, x);
  const auto load = [&](int item, int i) {
    const Part part = PartOf(x, item);
    const int peer = call.PeerAt(i);
    Outgoing sum;
    if (x.first + part.token < x.tokens_of(peer)) {
      const int64_t row = x.first_token[peer] + x.first + part.token;
      if (part.is_used) {
        sum.values = PartialOf(t, x, row, part.packet);
      }
      sum.ranks = RanksOf(t.received_ids + row * x.top_k, x);
    }
    return sum;
  };
  const auto send = [&](int item, int i, const Outgoing& sum) {
    const Part part = PartOf(x, item);
    if (part.is_used && sum.GoesTo(view.rank)) {
      SendPacket(call.To(call.PeerAt(i), x.slot_packets) + 1 +
                     static_cast<int64_t>(part.token) * x.record + part.packet,
                 sum.values);
    }
  };
  const auto receive = [&](int item) {
    const Part part = PartOf(x, item);
    if (part.token >= own_tokens) {
      return;
    }
    const int64_t token = x.first + part.token;
    const uint32_t ranks = RanksOf(t.expert_ids + token * x.top_k, x);
    if (!part.is_used) {
      return;
    }
    PacketSum sum;
    for (int rank = 0; rank <= num_peers; ++rank) {
      if ((ranks >> rank & 1) == 0) {
        continue;
      }
      if (rank == view.rank) {
        sum.Add(PartialOf(t, x, x.first_token[rank] + token, part.packet));
        continue;
      }
      const int i = rank < view.rank ? rank : rank - 1;
      uint4* const at = call.From(i, x.slot_packets) + 1 +
                        static_cast<int64_t>(part.token) * x.record + part.packet;
      sum.Add(call.Receive(at, i));
      EmptyPacket(at);
    }
    StoreSum(t, x, token, part.packet, sum);
  };
  int item = static_cast<int>(blockIdx.y);
  const Outgoing first = load(item, 0);
  if (call.has_failed()) {
    return;
  }
  greeting.Send();
  send(item, 0, first);
  for (int i = 1; i < num_peers; ++i) {
    send(item, i, load(item, i));
  }
  call.TakeTicket();
  for (; item < num_items; item += num_blocks) {
    for (int i = 0; item + num_blocks < num_items && i < num_peers; ++i) {
      send(item + num_blocks, i, load(item + num_blocks, i));
    }
    receive(item);
  }
  greeting.Receive();
  call.End();
}

// A block a part of a row.
__global__ void SumReturnedKernel(const __grid_constant__ Exchange x,
                                  const __grid_constant__ CombineTensors t, const uint4* returned,
                                  int self, int num_ranks) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t own_tokens = x.tokens_of(self);
  const int num_blocks = static_cast<int>(gridDim.y);
  const int num_items = x.count * x.items_of_token;
  for (int item = static_cast<int>(blockIdx.y); item < num_items; item += num_blocks) {
    const Part part = PartOf(x, item);
    const uint32_t ranks = RanksOf(t.expert_ids + static_cast<int64_t>(part.token) * x.top_k, x);
    if (!part.is_used) {
      continue;
    }
    PacketSum sum;
    for (int rank = 0; rank < num_ranks; ++rank) {
      if ((ranks >> rank & 1) != 0) {
        sum.Add(rank == self
                    ? PartialOf(t, x, x.first_token[self] + part.token, part.packet)
                    : returned[(rank * own_tokens + part.token) * x.row_packets + part.packet]);
      }
    }
    StoreSum(t, x, part.token, part.packet, sum);
  }
}

int64_t RowPackets(const TokenSplit& split) { return split.hidden_size / 8; }
int64_t DispatchRecord(const TokenSplit& split) {
  return RowPackets(split) + (split.top_k + 1) / 2;
}

// Blocks of about 128 threads that divide a record evenly; of about 256 where there is much of it
// (docs/kernels/all_reduce.md has the sizes).
int ThreadsFor(int64_t record, int64_t count) {
  const int64_t wanted = record * count > (8 << 10) ? 256 : 128;
  const int64_t items = (record + wanted - 1) / wanted;
  const int64_t threads = (record + items - 1) / items;
  return static_cast<int>((threads + 31) / 32 * 32);
}

Exchange ExchangeOf(const TokenSplit& split, int64_t record, int64_t first, int64_t count,
                    int threads, bool has_words) {
  Exchange x = {};
  std::copy(std::begin(split.first_token), std::end(split.first_token), x.first_token);
  x.first = first;
  x.count = static_cast<int>(count);
  x.row_packets = static_cast<int>(RowPackets(split));
  x.record = static_cast<int>(record);
  x.items_of_token = static_cast<int>((record + threads - 1) / threads);
  x.top_k = static_cast<int>(split.top_k);
  x.experts_per_rank = static_cast<int>(split.num_experts / split.num_ranks);
  x.slot_packets = 1 + count * record + (has_words ? count * x.items_of_token : 0);
  return x;
}

absl::Status Validate(const PeerView& view, const TokenSplit& split, int64_t first, int64_t count,
                      int64_t most, int threads) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  if (view.num_ranks != split.num_ranks || view.num_ranks < 2) {
    return absl::InvalidArgumentError(absl::StrCat("exchange of tokens over ", split.num_ranks,
                                                   " ranks in a gang of ", view.num_ranks));
  }
  if (first < 0 || count < 1 || count > most) {
    return absl::InvalidArgumentError(absl::StrCat("exchange of ", count,
                                                   " tokens a rank: a region of ",
                                                   view.region_bytes, " bytes takes 1 to ", most));
  }
  if (threads % 32 != 0 || threads < 32 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of tokens: threads_per_block=", threads, ": a multiple of 32 up to ",
                     kMaxThreads));
  }
  return absl::OkStatus();
}

// A token takes its record and at most a word for each 32 packets of it.
int64_t MaxTokens(const TokenSplit& split, int64_t region_bytes, int64_t record) {
  const int64_t slot = region_bytes / kPacketBytes / std::max(1, split.num_ranks - 1) - 1;
  return std::max<int64_t>(0, slot) / (record + (record + 31) / 32);
}

}  // namespace

int64_t DispatchMaxTokens(const TokenSplit& split, int64_t region_bytes) {
  return MaxTokens(split, region_bytes, DispatchRecord(split));
}

int64_t CombineMaxTokens(const TokenSplit& split, int64_t region_bytes) {
  return MaxTokens(split, region_bytes, RowPackets(split));
}

absl::Status LaunchPeerDispatch(const PeerView& view, const TokenSplit& split,
                                const DispatchTensors& tensors, int64_t first, int64_t count,
                                int threads_per_block, cudaStream_t stream) {
  const int64_t record = DispatchRecord(split);
  const int threads = threads_per_block > 0 ? threads_per_block : ThreadsFor(record, count);
  LASTFLOP_RETURN_IF_ERROR(
      Validate(view, split, first, count, DispatchMaxTokens(split, view.region_bytes), threads));
  const Exchange x = ExchangeOf(split, record, first, count, threads, /*has_words=*/true);
  return LaunchCall("all_to_all dispatch",
                    view.num_ranks == 2 ? DispatchKernel<2> : DispatchKernel<0>,
                    count * x.items_of_token, 1, threads, stream, view, x, tensors);
}

absl::Status LaunchPeerCombine(const PeerView& view, const TokenSplit& split,
                               const CombineTensors& tensors, int64_t first, int64_t count,
                               int threads_per_block, cudaStream_t stream) {
  const int64_t record = RowPackets(split);
  const int threads = threads_per_block > 0 ? threads_per_block : ThreadsFor(record, count);
  LASTFLOP_RETURN_IF_ERROR(
      Validate(view, split, first, count, CombineMaxTokens(split, view.region_bytes), threads));
  const Exchange x = ExchangeOf(split, record, first, count, threads, /*has_words=*/false);
  return LaunchCall("all_to_all combine", view.num_ranks == 2 ? CombineKernel<2> : CombineKernel<0>,
                    count * x.items_of_token, 1, threads, stream, view, x, tensors);
}

absl::Status LaunchSumReturned(const TokenSplit& split, int rank, const CombineTensors& tensors,
                               const __nv_bfloat16* returned, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  const int64_t count = split.tokens_of(rank);
  if (count == 0) {
    return absl::OkStatus();
  }
  const int64_t record = RowPackets(split);
  const int threads = ThreadsFor(record, count);
  const Exchange x = ExchangeOf(split, record, 0, count, threads, /*has_words=*/false);
  return LaunchCall("all_to_all sum", SumReturnedKernel, count * x.items_of_token, 1, threads,
                    stream, x, tensors, reinterpret_cast<const uint4*>(returned), rank,
                    split.num_ranks);
}

}  // namespace lastflop
