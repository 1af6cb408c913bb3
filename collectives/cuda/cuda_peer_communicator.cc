#include "collectives/cuda/cuda_peer_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "gpu/stream.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{5};
constexpr int kHopCalls = 64;

}  // namespace

int64_t CudaPeerCommunicator::MemoryBytes(const Options& options) {
  return 2 * (options.region_bytes / kPacketBytes * kPacketBytes) + kArrivalBytes;
}

absl::StatusOr<std::unique_ptr<CudaPeerCommunicator>> CudaPeerCommunicator::Create(
    Gang& gang, const Options& options) {
  if (gang.num_ranks() < 2 || gang.num_ranks() > kMaxPeerRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "collectives over peer memory of ", gang.num_ranks(), " ranks: 2 to ", kMaxPeerRanks));
  }
  if (options.region_bytes < kPacketBytes * gang.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("region_bytes=", options.region_bytes, ": ",
                                                   gang.num_ranks(), " ranks need more"));
  }
  std::unique_ptr<CudaPeerCommunicator> made(new CudaPeerCommunicator(options));
  LASTFLOP_RETURN_IF_ERROR(made->Open(gang));
  return made;
}

absl::Status CudaPeerCommunicator::Open(Gang& gang) {
  view_.region_bytes = options_.region_bytes / kPacketBytes * kPacketBytes;
  view_.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(options_.timeout).count());
  view_.rank = gang.rank();
  view_.num_ranks = gang.num_ranks();
  const auto bytes = static_cast<size_t>(MemoryBytes(options_));
  LASTFLOP_ASSIGN_OR_RETURN(memory_, CudaPeerMemory::Create(gang, bytes));
  for (int rank = 0; rank < view_.num_ranks; ++rank) {
    view_.regions[rank] = memory_->of_rank(rank);
  }
  LASTFLOP_ASSIGN_OR_RETURN(control_, DeviceBuffer::Create(sizeof(PeerControl)));
  view_.control = control_.As<PeerControl>();
  void* report = nullptr;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&report, sizeof(PeerReport), cudaHostAllocMapped),
                                "making a report");
  report_.reset(new (report) PeerReport());
  view_.report = report_.get();  // One address for host and device on all that CUDA 13 runs on.
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemset(view_.control, 0, sizeof(PeerControl)),
                                "zeroing the control");
  // Every word says "not here yet".
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemset(memory_->of_rank(view_.rank), 0xFF, bytes),
                                "emptying the regions");
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "emptying the regions");
  watcher_ = std::thread([this] { LookAfterGang(); });
  const std::shared_ptr<const void> watch = Watch(gang);
  LASTFLOP_RETURN_IF_ERROR(gang.Barrier());
  return MeasureHop();
}

// The least of many calls that all ranks make together.
absl::Status CudaPeerCommunicator::MeasureHop() {
  LASTFLOP_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer values, DeviceBuffer::Create(kPacketBytes));
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(values.data(), 0, kPacketBytes, stream.get()),
                                "zeroing values");
  SetStamping(true);
  for (int i = 0; i < kHopCalls; ++i) {
    LASTFLOP_RETURN_IF_ERROR(
        AllReduce(values.As<__nv_bfloat16>(), 8, AllReduceAlgorithm::kOneShot, stream.get()));
  }
  SetStamping(false);
  PeerControl control;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(&control, view_.control, sizeof(control),
                                                cudaMemcpyDeviceToHost, stream.get()),
                                "reading stamps");
  LASTFLOP_RETURN_IF_ERROR(stream.Synchronize());
  LASTFLOP_RETURN_IF_ERROR(Check());
  hop_us_ = static_cast<double>(control.least_wait_ns) * 1e-3;
  return ResetStamps(stream.get());
}

CudaPeerCommunicator::~CudaPeerCommunicator() {
  if (watcher_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_ending_ = true;
    }
    ended_.notify_one();
    watcher_.join();
  }
}

std::shared_ptr<const void> CudaPeerCommunicator::Watch(Gang& gang) {
  std::shared_ptr<const void> watch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    watch = watch_.lock();
    if (watch != nullptr && gang_ == &gang) {
      return watch;
    }
    gang_ = &gang;
  }
  const Gang* const watched = &gang;
  watch = std::shared_ptr<const void>(watched, [this](const void* ended) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gang_ == ended) {
      gang_ = nullptr;
    }
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  watch_ = watch;
  return watch;
}

void CudaPeerCommunicator::LookAfterGang() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_ending_) {
    if (gang_ != nullptr && lost_.ok() && gang_->IsBroken()) {
      lost_ = gang_->BrokenStatus();
      std::atomic_ref<uint32_t>(report_->abort).store(1, std::memory_order_release);
    }
    ended_.wait_for(lock, kWatchEvery);
  }
}

AllReduceAlgorithm CudaPeerCommunicator::RunsAs(AllReduceAlgorithm algorithm,
                                                int64_t elements) const {
  return algorithm == AllReduceAlgorithm::kTwoShot && elements > 8 * (view_.num_ranks - 1)
             ? AllReduceAlgorithm::kTwoShot
             : AllReduceAlgorithm::kOneShot;
}

absl::Status CudaPeerCommunicator::AllReduce(__nv_bfloat16* data, int64_t elements,
                                             AllReduceAlgorithm algorithm, cudaStream_t stream,
                                             int threads_per_block) {
  if (algorithm != AllReduceAlgorithm::kOneShot && algorithm != AllReduceAlgorithm::kTwoShot) {
    return absl::InvalidArgumentError(absl::StrCat(
        "all-reduce over peer memory: ", ToWord(algorithm), " is not one_shot or two_shot"));
  }
  const bool is_two_shot = algorithm == AllReduceAlgorithm::kTwoShot;
  const int64_t most = is_two_shot ? TwoShotMaxElements(view_.region_bytes, view_.num_ranks)
                                   : OneShotMaxElements(view_.region_bytes, view_.num_ranks);
  for (int64_t at = 0; at < elements; at += most) {
    const int64_t count = std::min(most, elements - at);
    LASTFLOP_RETURN_IF_ERROR(
        RunsAs(algorithm, count) == AllReduceAlgorithm::kTwoShot
            ? LaunchTwoShotAllReduce(view_, data + at, data + at, count, threads_per_block, stream)
            : LaunchOneShotAllReduce(view_, data + at, data + at, count, threads_per_block,
                                     stream));
  }
  return absl::OkStatus();
}

absl::Status CudaPeerCommunicator::CheckNorm(const NormShape& shape) const {
  return CheckAllReduceNorm(shape, view_.region_bytes, view_.num_ranks);
}

absl::Status CudaPeerCommunicator::AllReduceNorm(const NormShape& shape, const __nv_bfloat16* in,
                                                 __nv_bfloat16* residual, const __nv_bfloat16* gain,
                                                 __nv_bfloat16* out, cudaStream_t stream,
                                                 int cluster) {
  return LaunchAllReduceNorm(view_, shape, in, residual, gain, out, cluster, stream);
}

absl::Status CudaPeerCommunicator::Dispatch(const TokenSplit& split, const DispatchTensors& tensors,
                                            cudaStream_t stream, int threads_per_block) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  const int64_t tokens = split.most_tokens();
  const int64_t most = std::max<int64_t>(1, DispatchMaxTokens(split, view_.region_bytes));
  for (int64_t first = 0; first < tokens; first += most) {
    LASTFLOP_RETURN_IF_ERROR(LaunchPeerDispatch(
        view_, split, tensors, first, std::min(most, tokens - first), threads_per_block, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaPeerCommunicator::Combine(const TokenSplit& split, const CombineTensors& tensors,
                                           cudaStream_t stream, int threads_per_block) {
  LASTFLOP_RETURN_IF_ERROR(CheckTokenSplit(split));
  const int64_t tokens = split.most_tokens();
  const int64_t most = std::max<int64_t>(1, CombineMaxTokens(split, view_.region_bytes));
  for (int64_t first = 0; first < tokens; first += most) {
    LASTFLOP_RETURN_IF_ERROR(LaunchPeerCombine(
        view_, split, tensors, first, std::min(most, tokens - first), threads_per_block, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaPeerCommunicator::Check() const {
  const uint32_t failed =
      std::atomic_ref<uint32_t>(report_->failed).load(std::memory_order_acquire);
  if (failed == 0) {
    return absl::OkStatus();
  }
  const std::string what = absl::StrCat("collective call ", report_->epoch, ": rank ", failed - 1,
                                        " of ", view_.num_ranks);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lost_.ok()) {
    return absl::Status(lost_.code(), absl::StrCat(what, " sent no part of it (",
                                                   std::string(lost_.message()), ")"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(what, " sent no part of it within ", options_.timeout.count(), " ms"));
}

absl::Status CudaPeerCommunicator::ResetStamps(cudaStream_t stream) {
  constexpr size_t kFirst = offsetof(PeerControl, stamped_calls);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(reinterpret_cast<std::byte*>(view_.control) + kFirst, 0,
                      sizeof(PeerControl) - kFirst, stream),
      "resetting stamps");
  return CudaStatus(cudaStreamSynchronize(stream), "resetting stamps");
}

absl::StatusOr<CudaPeerCommunicator::Stamps> CudaPeerCommunicator::ReadStamps(
    cudaStream_t stream) const {
  PeerControl control;
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&control, view_.control, sizeof(control), cudaMemcpyDeviceToHost, stream),
      "reading stamps");
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream), "reading stamps");
  Stamps stamps;
  stamps.calls = static_cast<int64_t>(control.stamped_calls);
  const double total_us = static_cast<double>(control.total_ns) * 1e-3;
  stamps.wait_us = std::max(0.0, static_cast<double>(control.wait_ns) * 1e-3 -
                                     hop_us_ * static_cast<double>(stamps.calls));
  stamps.transfer_us = total_us - stamps.wait_us;
  return stamps;
}

}  // namespace lastflop
