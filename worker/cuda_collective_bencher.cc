#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/all_reduce_algorithm.h"
#include "collectives/cuda/cuda_peer_communicator.h"
#include "collectives/cuda/nccl_all_to_all_cuda.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "gpu/device_buffer.h"
#include "gpu/nccl.h"
#include "gpu/stream.h"
#include "gpu/visible_gpus.h"
#include "kernels/cpu/bf16.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "worker/collective_bencher.h"

namespace lastflop {
namespace {

constexpr int64_t kNormSize = kBenchHiddenSize;
constexpr int64_t kMostChainBytes = int64_t{1} << 30;  // Of the buffers of independent calls.
constexpr int kWarmUpChains = 2;
constexpr int kStampedChains = 3;

class CudaCollectiveBencher final : public CollectiveBencher {
 public:
  explicit CudaCollectiveBencher(Gang& gang) : gang_(gang) {}

  absl::Status Open(int device_index) {
    NumberGpusByBus();
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_index), "choosing the device");
    cudaDeviceProp properties{};
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device_index),
                                  "asking for the device");
    environment_ = {{"backend", "cuda"}, {"gpu", properties.name}};
    LASTFLOP_ASSIGN_OR_RETURN(stream_, Stream::Create());
    LASTFLOP_ASSIGN_OR_RETURN(begin_, Event::Create());
    LASTFLOP_ASSIGN_OR_RETURN(end_, Event::Create());
    LASTFLOP_ASSIGN_OR_RETURN(
        nccl_, Nccl::Create(gang_.rank(), gang_.num_ranks(), [&](const std::string& bytes) {
          return gang_.BroadcastFromLeader(bytes);
        }));
    environment_["nccl"] = absl::StrCat(nccl_->version());
    auto peers = CudaPeerCommunicator::Create(gang_, {});
    if (!peers.ok() && !absl::IsUnimplemented(peers.status())) {
      return peers.status();
    }
    environment_["peer_memory"] = peers.ok() ? "reached" : std::string(peers.status().message());
    if (peers.ok()) {
      peers_ = *std::move(peers);
      watch_ = peers_->Watch(gang_);
      environment_["hop_us"] = absl::StrCat(peers_->hop_us());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CollectiveSamples> Run(const CollectiveCase& test) override {
    if (IsAllToAll(test)) {
      return RunAllToAll(test);
    }
    LASTFLOP_ASSIGN_OR_RETURN(
        const AllReduceAlgorithm ran,
        ResolveCudaAllReduce(test.asked, test.bytes, gang_.num_ranks(), peers_ != nullptr));
    ran_ = ran;
    return test.operation == "all_reduce" ? RunAllReduce(test) : RunNorm(test);
  }

  std::map<std::string, std::string> Environment() override { return environment_; }

 private:
  using Call = std::function<absl::Status(int index)>;

  bool uses_peers() const { return ran_ != AllReduceAlgorithm::kNccl; }

  absl::Status AllReduce(__nv_bfloat16* data, int64_t elements) {
    return uses_peers() ? peers_->AllReduce(data, elements, ran_, stream_.get())
                        : nccl_->AllReduce(data, elements, stream_.get());
  }

  // A call that lets the ranks begin together, then the timed ones.
  absl::StatusOr<Graph> Capture(int num_calls, const Call& call) {
    return Graph::Capture(stream_, [&]() -> absl::Status {
      LASTFLOP_RETURN_IF_ERROR(AllReduce(together_.As<__nv_bfloat16>(), 8));
      LASTFLOP_RETURN_IF_ERROR(begin_->RecordInGraph(stream_.get()));
      for (int i = 0; i < num_calls; ++i) {
        LASTFLOP_RETURN_IF_ERROR(call(i));
      }
      return end_->RecordInGraph(stream_.get());
    });
  }

  absl::Status Wait() {
    LASTFLOP_RETURN_IF_ERROR(stream_.Synchronize());
    return peers_ != nullptr ? peers_->Check() : absl::OkStatus();
  }

  absl::Status Replay(const Graph& graph, const std::function<absl::Status()>& reset) {
    LASTFLOP_RETURN_IF_ERROR(reset());
    LASTFLOP_RETURN_IF_ERROR(Wait());
    LASTFLOP_RETURN_IF_ERROR(gang_.Barrier());
    LASTFLOP_RETURN_IF_ERROR(graph.Launch(stream_));
    return Wait();
  }

  // Times chains of `call`, each from what `reset` makes; then stamps some where peers are used.
  absl::StatusOr<CollectiveSamples> TimeChains(const CollectiveCase& test, const Call& call,
                                               const std::function<absl::Status()>& reset) {
    CollectiveSamples samples;
    samples.ran = ran_;
    LASTFLOP_ASSIGN_OR_RETURN(together_, DeviceBuffer::Create(kPacketBytes));
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(together_.data(), 0, kPacketBytes, stream_.get()),
                                  "zeroing a packet");
    // Once by itself: loading code and connecting is no part of a capture.
    LASTFLOP_RETURN_IF_ERROR(reset());
    LASTFLOP_RETURN_IF_ERROR(AllReduce(together_.As<__nv_bfloat16>(), 8));
    LASTFLOP_RETURN_IF_ERROR(call(0));
    LASTFLOP_RETURN_IF_ERROR(Wait());
    if (uses_peers()) {
      LASTFLOP_RETURN_IF_ERROR(peers_->ResetStamps(stream_.get()));
      peers_->SetStamping(true);
      const absl::StatusOr<Graph> stamped = Capture(test.num_calls, call);
      peers_->SetStamping(false);
      LASTFLOP_RETURN_IF_ERROR(stamped.status());
      for (int i = 0; i < kStampedChains; ++i) {
        LASTFLOP_RETURN_IF_ERROR(Replay(*stamped, reset));
        if (i == 0) {  // Graphs are loaded at their first launch, on each rank in its own time.
          LASTFLOP_RETURN_IF_ERROR(peers_->ResetStamps(stream_.get()));
        }
      }
      LASTFLOP_ASSIGN_OR_RETURN(const auto stamps, peers_->ReadStamps(stream_.get()));
      samples.wait_us = stamps.calls > 0 ? stamps.wait_us / static_cast<double>(stamps.calls) : 0;
    }
    LASTFLOP_ASSIGN_OR_RETURN(const Graph graph, Capture(test.num_calls, call));
    for (int i = 0; i < test.num_samples + kWarmUpChains; ++i) {
      LASTFLOP_RETURN_IF_ERROR(Replay(graph, reset));
      LASTFLOP_ASSIGN_OR_RETURN(const double us, end_->MicrosSince(*begin_));
      if (i >= kWarmUpChains) {
        samples.us.push_back(us / test.num_calls);
      }
    }
    return samples;
  }

  absl::StatusOr<CollectiveSamples> RunAllReduce(const CollectiveCase& test) {
    const int64_t elements = test.bytes / 2;
    const int64_t most = std::max<int64_t>(2, kMostChainBytes / std::max<int64_t>(1, test.bytes));
    const int num_buffers =
        test.is_dependent ? 1 : static_cast<int>(std::min<int64_t>(test.num_calls, most));
    const int64_t pitch = (test.bytes + 255) / 256 * 256;
    LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer data,
                              DeviceBuffer::Create(static_cast<size_t>(pitch * num_buffers)));
    std::vector<uint16_t> initial(static_cast<size_t>(elements));
    for (int64_t i = 0; i < elements; ++i) {
      initial[static_cast<size_t>(i)] = CollectiveValue(gang_.rank(), i);
    }
    LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer first, Upload(initial));
    const auto buffer = [&](int index) {
      return data.As<__nv_bfloat16>(static_cast<size_t>(index % num_buffers * pitch));
    };
    const auto reset = [&]() -> absl::Status {
      for (int b = 0; b < num_buffers; ++b) {
        LASTFLOP_RETURN_IF_ERROR(CopyOnDevice(buffer(b), first));
      }
      return absl::OkStatus();
    };
    LASTFLOP_ASSIGN_OR_RETURN(
        CollectiveSamples samples,
        TimeChains(
            test, [&](int index) { return AllReduce(buffer(index), elements); }, reset));
    // NCCL may round more than once in a sum of more than two.
    const double tolerance = uses_peers() || gang_.num_ranks() == 2 ? 0 : 0.01 * test.num_calls;
    samples.is_correct = true;
    for (int b = 0; b < num_buffers; ++b) {
      const int reductions = (test.num_calls - b + num_buffers - 1) / num_buffers;
      LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> got, Download(buffer(b), elements));
      samples.is_correct =
          samples.is_correct &&
          MatchesPattern(got, ReducedPattern(gang_.num_ranks(), reductions), tolerance);
    }
    return samples;
  }

  // Two sets of buffers in turn: what one call receives the next one sends. NCCL may not send from
  // where it receives.
  absl::StatusOr<CollectiveSamples> RunAllToAll(const CollectiveCase& test) {
    ran_ = test.exchange == AllToAllAlgorithm::kNccl ? AllReduceAlgorithm::kNccl
                                                     : AllReduceAlgorithm::kOneShot;
    if (uses_peers() && peers_ == nullptr) {
      return absl::UnimplementedError(absl::StrCat("p2p: ", environment_["peer_memory"]));
    }
    ExchangeBuffers buffers;
    const int num_ranks = gang_.num_ranks();
    buffers.num_tokens = test.bytes / 2 / kBenchHiddenSize;
    buffers.split = {.num_ranks = num_ranks,
                     .hidden_size = kBenchHiddenSize,
                     .top_k = kBenchTopK,
                     .num_experts = kBenchExperts / num_ranks * num_ranks};
    for (int rank = 0; rank < num_ranks; ++rank) {
      buffers.split.first_token[rank + 1] = buffers.split.first_token[rank] + buffers.num_tokens;
    }
    LASTFLOP_RETURN_IF_ERROR(FillExchange(buffers));
    const auto call = [&](int index) {
      return test.operation == "all_to_all_dispatch"
                 ? CallDispatch(buffers, index, test.is_dependent)
                 : CallCombine(buffers, index, test.is_dependent);
    };
    LASTFLOP_ASSIGN_OR_RETURN(CollectiveSamples samples,
                              TimeChains(test, call, [&] { return ResetExchange(buffers); }));
    LASTFLOP_ASSIGN_OR_RETURN(samples.is_correct, test.operation == "all_to_all_dispatch"
                                                      ? IsDispatched(buffers, test)
                                                      : IsCombined(buffers, test));
    return samples;
  }

  // Rows of all ranks' tokens twice, in blocks of a rank's; the own first rows, experts, weights.
  struct ExchangeBuffers {
    TokenSplit split;
    int64_t num_tokens = 0;  // Of each rank.
    DeviceBuffer rows[2];
    DeviceBuffer first;
    DeviceBuffer ones;
    DeviceBuffer ids;
    DeviceBuffer weights;
    DeviceBuffer received_ids;
    DeviceBuffer received_weights;
    DeviceBuffer returned;  // Of NCCL's combine.
    DeviceBuffer out;       // Of independent combines.

    int64_t block_elements() const { return num_tokens * split.hidden_size; }
    __nv_bfloat16* block(int buffer, int rank) const {
      return rows[buffer].As<__nv_bfloat16>() + rank * block_elements();
    }
  };

  int next_rank() const { return (gang_.rank() + 1) % gang_.num_ranks(); }

  absl::Status FillExchange(ExchangeBuffers& b) {
    const auto elements = static_cast<size_t>(b.block_elements());
    std::vector<uint16_t> values(elements);
    for (size_t i = 0; i < elements; ++i) {
      values[i] = BenchRowValue(gang_.rank(), static_cast<int64_t>(i));
    }
    LASTFLOP_ASSIGN_OR_RETURN(b.first, Upload(values));
    LASTFLOP_ASSIGN_OR_RETURN(b.ones, Upload(std::vector<uint16_t>(elements, ToBf16(1.0F).bits)));
    const auto slots = static_cast<size_t>(b.num_tokens * b.split.top_k);
    const auto ranks = static_cast<size_t>(b.split.num_ranks);
    LASTFLOP_ASSIGN_OR_RETURN(b.ids, DeviceBuffer::Create(slots * sizeof(int32_t)));
    LASTFLOP_ASSIGN_OR_RETURN(b.weights, DeviceBuffer::Create(slots * sizeof(float)));
    LASTFLOP_ASSIGN_OR_RETURN(b.received_ids,
                              DeviceBuffer::Create(ranks * slots * sizeof(int32_t)));
    LASTFLOP_ASSIGN_OR_RETURN(b.received_weights,
                              DeviceBuffer::Create(ranks * slots * sizeof(float)));
    const std::vector<int32_t> ids = IdsOfRank(b);
    const std::vector<float> weights(slots, 0.125F);
    LASTFLOP_RETURN_IF_ERROR(Send(ids, b.ids, 0));
    LASTFLOP_RETURN_IF_ERROR(Send(weights, b.weights, 0));
    for (size_t rank = 0; rank < ranks;
         ++rank) {  // What a dispatch before the combine would leave.
      LASTFLOP_RETURN_IF_ERROR(Send(ids, b.received_ids, rank * slots * sizeof(int32_t)));
    }
    for (DeviceBuffer* buffer : {&b.rows[0], &b.rows[1], &b.returned}) {
      LASTFLOP_ASSIGN_OR_RETURN(*buffer, DeviceBuffer::Create(ranks * elements * 2));
    }
    LASTFLOP_ASSIGN_OR_RETURN(b.out, DeviceBuffer::Create(elements * 2));
    return absl::OkStatus();
  }

  // Every rank routes alike.
  static std::vector<int32_t> IdsOfRank(const ExchangeBuffers& b) {
    std::vector<int32_t> ids;
    for (int64_t token = 0; token < b.num_tokens; ++token) {
      for (int64_t k = 0; k < b.split.top_k; ++k) {
        ids.push_back(BenchExpertOf(b.split.num_ranks, token, k));
      }
    }
    return ids;
  }

  // The first rows where the first call of a chain sends from; ones in the own block and zeros in
  // all others, which a combine adds.
  absl::Status ResetExchange(ExchangeBuffers& b) {
    for (int i = 0; i < 2; ++i) {
      LASTFLOP_CUDA_RETURN_IF_ERROR(
          cudaMemsetAsync(b.rows[i].data(), 0, b.rows[i].bytes(), stream_.get()), "zeroing");
      LASTFLOP_RETURN_IF_ERROR(CopyOnDevice(b.block(i, gang_.rank()), b.ones));
    }
    return CopyOnDevice(b.block(0, next_rank()), b.first);
  }

  absl::Status CallDispatch(const ExchangeBuffers& b, int index, bool is_dependent) {
    const int from = is_dependent ? index % 2 : 0;
    const DispatchTensors tensors{
        .rows = is_dependent ? b.block(from, next_rank()) : b.first.As<__nv_bfloat16>(),
        .expert_ids = b.ids.As<int32_t>(),
        .weights = b.weights.As<float>(),
        .received = b.block(1 - from, 0),
        .received_ids = b.received_ids.As<int32_t>(),
        .received_weights = b.received_weights.As<float>()};
    return uses_peers() ? peers_->Dispatch(b.split, tensors, stream_.get())
                        : NcclDispatch(*nccl_, gang_.rank(), b.split, tensors, stream_.get());
  }

  absl::Status CallCombine(const ExchangeBuffers& b, int index, bool is_dependent) {
    const int from = is_dependent ? index % 2 : 0;
    const CombineTensors tensors{
        .partial = b.block(from, 0),
        .received_ids = b.received_ids.As<int32_t>(),
        .expert_ids = b.ids.As<int32_t>(),
        .out = is_dependent ? b.block(1 - from, next_rank()) : b.out.As<__nv_bfloat16>()};
    return uses_peers() ? peers_->Combine(b.split, tensors, stream_.get())
                        : NcclCombine(*nccl_, gang_.rank(), b.split, tensors,
                                      b.returned.As<__nv_bfloat16>(), stream_.get());
  }

  // Block q of the last call is what rank q sent: the first rows of the rank so many calls further.
  absl::StatusOr<bool> IsDispatched(const ExchangeBuffers& b, const CollectiveCase& test) {
    const int last = test.is_dependent ? test.num_calls % 2 : 1;
    const int further = test.is_dependent ? test.num_calls - 1 : 0;
    for (int rank = 0; rank < b.split.num_ranks; ++rank) {
      LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> got,
                                Download(b.block(last, rank), b.block_elements()));
      const int origin = (rank + further) % b.split.num_ranks;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] != BenchRowValue(origin, static_cast<int64_t>(i))) {
          return false;
        }
      }
      const std::vector<int32_t> ids = IdsOfRank(b);
      std::vector<int32_t> got_ids(ids.size());
      LASTFLOP_CUDA_RETURN_IF_ERROR(
          cudaMemcpy(got_ids.data(),
                     b.received_ids.As<int32_t>() + rank * static_cast<int64_t>(ids.size()),
                     ids.size() * sizeof(int32_t), cudaMemcpyDeviceToHost),
          "reading experts");
      if (got_ids != ids) {
        return false;
      }
    }
    return true;
  }

  // Each call adds the ones of the own block to the rows of the rank before.
  absl::StatusOr<bool> IsCombined(const ExchangeBuffers& b, const CollectiveCase& test) {
    const int calls = test.is_dependent ? test.num_calls : 1;
    const int ranks = b.split.num_ranks;
    const int origin = ((gang_.rank() - calls) % ranks + ranks) % ranks;
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> got,
                              Download(test.is_dependent ? b.block(test.num_calls % 2, next_rank())
                                                         : b.out.As<__nv_bfloat16>(),
                                       b.block_elements()));
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != BenchRowValue(origin, static_cast<int64_t>(i), calls)) {
        return false;
      }
    }
    return true;
  }

  template <typename T>
  absl::Status Send(const std::vector<T>& values, const DeviceBuffer& to, size_t offset) {
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(to.data() + offset, values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice, stream_.get()),
        "sending values");
    return stream_.Synchronize();
  }

  // The chain that is timed must end where the one with the norm apart (or with it inside) ends.
  absl::StatusOr<CollectiveSamples> RunNorm(const CollectiveCase& test) {
    if (!uses_peers() || ran_ != AllReduceAlgorithm::kOneShot || !test.is_dependent) {
      return absl::UnimplementedError(
          absl::StrCat(test.operation, ": one_shot over peer memory, in dependent chains"));
    }
    const int64_t elements = test.bytes / 2;
    const NormShape shape{.rows = elements / kNormSize,
                          .size = kNormSize,
                          .stride = kNormSize,
                          .epsilon = 1e-6,
                          .add_residual = true};
    if (shape.rows * kNormSize != elements) {
      return absl::InvalidArgumentError(absl::StrCat(test.operation, " of ", test.bytes,
                                                     " bytes: rows of ", kNormSize, " values"));
    }
    std::vector<uint16_t> initial(static_cast<size_t>(elements));
    for (size_t i = 0; i < initial.size(); ++i) {
      const auto step = static_cast<float>((i * 37 + static_cast<size_t>(gang_.rank()) * 11) % 101);
      initial[i] = ToBf16(step / 50.0F - 1.0F).bits;
    }
    LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer first, Upload(initial));
    LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer hidden, DeviceBuffer::Create(first.bytes()));
    LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer residual, DeviceBuffer::Create(first.bytes()));
    LASTFLOP_ASSIGN_OR_RETURN(
        const DeviceBuffer gain,
        Upload(std::vector<uint16_t>(static_cast<size_t>(kNormSize), ToBf16(0.75F).bits)));
    LASTFLOP_RETURN_IF_ERROR(stream_.Synchronize());
    auto* const h = hidden.As<__nv_bfloat16>();
    auto* const r = residual.As<__nv_bfloat16>();
    const auto* const g = gain.As<__nv_bfloat16>();
    const Call fused = [&](int /*index*/) {
      return peers_->AllReduceNorm(shape, h, r, g, h, stream_.get());
    };
    const Call apart = [&](int /*index*/) -> absl::Status {
      LASTFLOP_RETURN_IF_ERROR(AllReduce(h, elements));
      return LaunchRmsNorm(shape, h, r, g, h, stream_.get());
    };
    const auto reset = [&]() -> absl::Status {
      LASTFLOP_RETURN_IF_ERROR(CopyOnDevice(h, first));
      return CudaStatus(cudaMemsetAsync(r, 0, residual.bytes(), stream_.get()), "zeroing");
    };
    const bool is_fused = test.operation == "all_reduce_norm";
    LASTFLOP_ASSIGN_OR_RETURN(CollectiveSamples samples,
                              TimeChains(test, is_fused ? fused : apart, reset));
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> timed, Download(h, elements));
    LASTFLOP_RETURN_IF_ERROR(reset());
    for (int i = 0; i < test.num_calls; ++i) {
      LASTFLOP_RETURN_IF_ERROR((is_fused ? apart : fused)(i));
    }
    LASTFLOP_RETURN_IF_ERROR(Wait());
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<uint16_t> other, Download(h, elements));
    samples.is_correct = true;
    for (size_t i = 0; i < timed.size(); ++i) {
      const float wanted = ToFloat(Bf16{other[i]});
      samples.is_correct = samples.is_correct && std::abs(ToFloat(Bf16{timed[i]}) - wanted) <=
                                                     0.02F * std::max(std::abs(wanted), 0.1F);
    }
    return samples;
  }

  absl::StatusOr<DeviceBuffer> Upload(const std::vector<uint16_t>& values) {
    LASTFLOP_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(values.size() * 2));
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer.data(), values.data(), values.size() * 2,
                                                  cudaMemcpyHostToDevice, stream_.get()),
                                  "sending values");
    LASTFLOP_RETURN_IF_ERROR(stream_.Synchronize());
    return buffer;
  }

  absl::Status CopyOnDevice(void* to, const DeviceBuffer& from) {
    return CudaStatus(
        cudaMemcpyAsync(to, from.data(), from.bytes(), cudaMemcpyDeviceToDevice, stream_.get()),
        "resetting values");
  }

  absl::StatusOr<std::vector<uint16_t>> Download(const __nv_bfloat16* from, int64_t elements) {
    std::vector<uint16_t> values(static_cast<size_t>(elements));
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(values.data(), from, values.size() * 2,
                                                  cudaMemcpyDeviceToHost, stream_.get()),
                                  "reading values");
    LASTFLOP_RETURN_IF_ERROR(stream_.Synchronize());
    return values;
  }

  Gang& gang_;  // Outlives this.
  Stream stream_;
  std::optional<Event> begin_;
  std::optional<Event> end_;
  std::unique_ptr<Nccl> nccl_;
  std::unique_ptr<CudaPeerCommunicator> peers_;
  std::shared_ptr<const void> watch_;
  DeviceBuffer together_;
  AllReduceAlgorithm ran_ = AllReduceAlgorithm::kNccl;
  std::map<std::string, std::string> environment_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCudaCollectiveBencher(Gang& gang,
                                                                               int device_index) {
  auto bencher = std::make_unique<CudaCollectiveBencher>(gang);
  LASTFLOP_RETURN_IF_ERROR(bencher->Open(device_index));
  return bencher;
}

}  // namespace lastflop
