#include "worker/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/all_reduce_algorithm.h"
#include "collectives/cuda/cuda_peer_communicator.h"
#include "common/status_macros.h"
#include "common/units.h"
#include "common/words.h"
#include "gpu/cuda_status.h"
#include "gpu/visible_gpus.h"
#include "step/make_step.h"
#include "worker/cpu_host.h"
#include "worker/cuda_run_op.h"
#include "worker/cuda_step_memory.h"
#include "worker/cuda_support.h"
#include "worker/data_checksum.h"
#include "worker/plugin_host.h"

namespace lastflop {
namespace {

// Of the device's memory: graphs, code, and what cuBLASLt and NCCL take, which nobody counts.
constexpr double kUncountedBytes = 1.5 * kBytesPerGib;
constexpr double kMemoryShare = 0.98;

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    absl::StrAppend(&text, absl::StrFormat("%02x", static_cast<unsigned char>(uuid.bytes[i])));
  }
  return text;
}

std::string NcclTuningText(const NcclTuning& tuning) {
  return absl::StrCat(tuning.algorithm, ",", tuning.protocol, ",", tuning.channels);
}

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// One rank that stands for all takes its collectives from the machine file, which knows one link
// and no algorithm: what a plan says of how they run would be ignored.
absl::Status CheckModelled(const Plan& plan) {
  const Plan::Collectives& collectives = plan.collectives;
  const auto unsupported = [](absl::string_view field, absl::string_view value) {
    return absl::UnimplementedError(
        absl::StrCat(field, "=", value,
                     ": one rank stands for all, and its collectives are the machine file's, which "
                     "has no such choice; it takes a GPU for each rank"));
  };
  if (IsDataAttention(plan)) {
    return collectives.all_to_all == AllToAllAlgorithm::kNccl
               ? unsupported("collectives.all_to_all", "nccl")
               : absl::OkStatus();
  }
  if (plan.parallel.tensor == 1) {
    return absl::OkStatus();
  }
  if (collectives.all_reduce != AllReduceAlgorithm::kAuto &&
      collectives.all_reduce != AllReduceAlgorithm::kNccl) {
    return unsupported("collectives.all_reduce", ToWord(collectives.all_reduce));
  }
  if (!(collectives.nccl == NcclTuning{})) {
    return unsupported("collectives.nccl",
                       absl::StrCat(collectives.nccl.algorithm, ",", collectives.nccl.protocol, ",",
                                    collectives.nccl.channels));
  }
  return collectives.fuse_norm ? unsupported("collectives.fuse_norm", "true") : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& options) {
  return CudaBackend::Create(options);
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const BackendOptions& options) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  LASTFLOP_RETURN_IF_ERROR(backend->Open());
  return backend;
}

absl::Status CudaBackend::Open() {
  if (options_.measure.warm) {
    return absl::UnimplementedError("measure.warm=true: the CUDA backend measures cold weights");
  }
  NumberGpusByBus();
  int num_devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&num_devices); error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA does not start: ", cudaGetErrorString(error)));
  }
  if (options_.device_index >= num_devices) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", options_.device_index, ": this host shows ", num_devices, " GPUs"));
  }
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaSetDevice(options_.device_index), "choosing the device");
  cudaDeviceProp properties{};
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, options_.device_index),
                                "asking for the device");
  device_name_ = properties.name;
  uuid_ = UuidText(properties.uuid);
  if (!options_.gpu_uuid.empty() && options_.gpu_uuid != uuid_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda:", options_.device_index, " is ", uuid_, " to CUDA and ", options_.gpu_uuid,
        " to NVML, which is held: name GPUs by UUID in "
        "CUDA_VISIBLE_DEVICES"));
  }
  compute_capability_ = 10 * properties.major + properties.minor;
  architecture_ = absl::StrCat("sm_", compute_capability_);
  l2_bytes_ = properties.l2CacheSize;
  context_.num_sms = properties.multiProcessorCount;
  LASTFLOP_ASSIGN_OR_RETURN(context_.stream, Stream::Create());
  LASTFLOP_ASSIGN_OR_RETURN(context_.cublas_lt, CublasLt::Create());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for memory");
  byte_budget_ = kMemoryShare * static_cast<double>(free_bytes) - kUncountedBytes;
  if (options_.machine.memory_bytes > 0) {
    byte_budget_ =
        std::min(byte_budget_, kMemoryShare * static_cast<double>(options_.machine.memory_bytes) -
                                   kUncountedBytes);
  }
  byte_budget_ -= static_cast<double>(EvictorBytes(l2_bytes_));
  store_ = std::make_unique<CudaBufferStore>(byte_budget_);
  host_store_ = std::make_unique<CpuBufferStore>(static_cast<double>(AvailableMemoryBytes()) / 2 /
                                                 options_.num_ranks);
  RankCores cores = CoresOfRank(AllowedCores(), options_.rank, options_.num_ranks);
  LASTFLOP_ASSIGN_OR_RETURN(
      pool_, ThreadPool::Create({.cores = cores.cores, .shared_cores = cores.shared, .isa = {}}));
  telemetry_ = std::make_unique<CudaTelemetry>(uuid_);
  return absl::OkStatus();
}

CudaStepInputs CudaBackend::InputsOf(const Plan& plan, const Point& point, int rank,
                                     int64_t layers_kept) const {
  return {.model = options_.model,
          .plan = plan,
          .point = point,
          .rank = rank,
          .shard = options_.shard || options_.experts_only,
          .layers_kept = layers_kept,
          .experts_only = options_.experts_only,
          .data = data(),
          .plugins = options_.plugins,
          .device_index = options_.device_index,
          .compute_capability = compute_capability_};
}

absl::Status CudaBackend::CheckPlan(const Plan& plan, const Point& point, const Gang& gang) const {
  LASTFLOP_RETURN_IF_ERROR(CheckCudaSupport(options_.model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(options_.model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPoint(options_.model, plan, point));
  if (!options_.shard && !options_.experts_only && plan.num_ranks() > gang.num_ranks()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the plan needs ", plan.num_ranks(), " ranks and the gang has ", gang.num_ranks()));
  }
  return CheckFits(plan, point);
}

// Of the model's own memory, beside what measuring it takes.
absl::Status CudaBackend::CheckFits(const Plan& plan, const Point& point) const {
  LASTFLOP_ASSIGN_OR_RETURN(
      const CudaStepMemory memory,
      MemoryOf(InputsOf(plan, point, /*rank=*/0, options_.layers_kept), context_.num_sms));
  const double beside = memory.own_bytes + memory.workspace_bytes + memory.panel_bytes +
                        memory.plugin_bytes + PeerBytesOf(plan);
  const MemoryFit fit =
      FitMemory(options_.model, plan, point, options_.layers_kept, byte_budget_ - beside);
  if (fit.fits()) {
    return absl::OkStatus();
  }
  const std::string advice =
      fit.devices_needed > 0 ? absl::StrCat("it would fit at parallel.tensor=", fit.devices_needed)
                             : "no tensor degree makes it fit";
  return absl::ResourceExhaustedError(absl::StrFormat(
      "a rank %s beside %.2f GiB of routes, kernels' workspace%s and peer memory; %s, and "
      "model.layers keeps fewer layers",
      fit.Describe(), beside / kBytesPerGib,
      memory.plugin_bytes > 0 ? ", what a plugin lays out" : "", advice));
}

double CudaBackend::PeerBytesOf(const Plan& plan) const {
  if (options_.shard || options_.experts_only || plan.num_ranks() == 1) {
    return 0;
  }
  const bool uses_peers =
      IsDataAttention(plan)
          ? plan.collectives.all_to_all != AllToAllAlgorithm::kNccl
          : plan.parallel.tensor > 1 && plan.collectives.all_reduce != AllReduceAlgorithm::kNccl;
  return uses_peers ? static_cast<double>(CudaPeerCommunicator::MemoryBytes({})) : 0;
}

absl::StatusOr<CudaBackend::PairMemory> CudaBackend::MemoryOfPair(const Plan& baseline,
                                                                  const Plan& variant,
                                                                  const Point& point, int rank,
                                                                  int64_t layers_kept) const {
  std::map<std::string, double> shared;
  PairMemory pair;
  pair.beside_bytes = std::max(PeerBytesOf(baseline), PeerBytesOf(variant));
  for (const Plan* plan : {&baseline, &variant}) {
    LASTFLOP_ASSIGN_OR_RETURN(
        const CudaStepMemory memory,
        MemoryOf(InputsOf(*plan, point, rank, layers_kept), context_.num_sms));
    for (const auto& [key, of_key] : memory.shared) {
      shared[key] = std::max(shared[key], of_key);
    }
    pair.beside_bytes += memory.own_bytes;
  }
  for (const auto& [key, of_key] : shared) {
    pair.shared_bytes += of_key;
  }
  return pair;
}

// Where both arms do not fit together with all layers, as many as fit are kept in both: experts
// sliced in two ways are two sets of weights.
absl::Status CudaBackend::StartAttempt(const Plan& baseline, const Plan& variant,
                                       const Point& point, Gang& gang) {
  telemetry_->Start();
  layers_kept_ = options_.layers_kept;
  for (const Plan* plan : {&variant, &baseline}) {
    LASTFLOP_RETURN_IF_ERROR(CheckPlan(*plan, point, gang));
  }
  const auto fits = [&](int64_t layers) -> absl::StatusOr<bool> {
    LASTFLOP_ASSIGN_OR_RETURN(const PairMemory pair,
                              MemoryOfPair(baseline, variant, point, gang.rank(), layers));
    return pair.shared_bytes + pair.beside_bytes <= byte_budget_;
  };
  int64_t layers = layers_kept_ > 0 ? std::min(layers_kept_, options_.model.num_moe_layers())
                                    : options_.model.num_moe_layers();
  LASTFLOP_ASSIGN_OR_RETURN(bool is_enough, fits(layers_kept_));
  int64_t low = 0;  // Fits, or is nothing.
  int64_t high = layers;
  if (!is_enough) {
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      LASTFLOP_ASSIGN_OR_RETURN(is_enough, fits(middle));
      (is_enough ? low : high) = middle;
    }
    layers = low;
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> of_ranks,
                            gang.AllGather(static_cast<double>(layers)));
  layers = static_cast<int64_t>(*std::min_element(of_ranks.begin(), of_ranks.end()));
  if (layers < 1) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("both arms together need more than the %.1f GiB that this rank may take, "
                        "even with one MoE layer",
                        byte_budget_ / kBytesPerGib));
  }
  if (layers < options_.model.num_moe_layers()) {
    layers_kept_ = layers;
  }
  LASTFLOP_ASSIGN_OR_RETURN(const PairMemory pair,
                            MemoryOfPair(baseline, variant, point, gang.rank(), layers_kept_));
  // What earlier trials left in the store makes room; what then is short says so itself.
  store_->Reserve(pair.beside_bytes);
  return absl::OkStatus();
}

// Collective calls, the same on every rank: they follow from the plan alone.
absl::Status CudaBackend::Connect(const Plan& plan, Gang& gang) {
  if (options_.shard) {
    return CheckModelled(plan);
  }
  const bool exchanges = IsDataAttention(plan);
  if (options_.experts_only || (plan.parallel.tensor == 1 && !exchanges)) {
    return absl::OkStatus();
  }
  if (plan.num_ranks() != gang.num_ranks()) {
    return absl::UnimplementedError(
        absl::StrCat(exchanges ? "parallel.expert=" : "parallel.tensor=",
                     exchanges ? plan.parallel.expert : plan.parallel.tensor, ": the CUDA backend ",
                     exchanges ? "exchanges tokens among" : "reduces over", " all ",
                     gang.num_ranks(), " ranks of a gang"));
  }
  if (exchanges) {
    return plan.collectives.all_to_all == AllToAllAlgorithm::kNccl ? ConnectNccl({}, gang)
                                                                   : ConnectPeers(plan, gang);
  }
  LASTFLOP_RETURN_IF_ERROR(ConnectNccl(plan.collectives.nccl, gang));
  return plan.collectives.all_reduce == AllReduceAlgorithm::kNccl ? absl::OkStatus()
                                                                  : ConnectPeers(plan, gang);
}

// The untuned one always: what sampling exchanges goes over it.
absl::Status CudaBackend::ConnectNccl(const NcclTuning& tuning, Gang& gang) {
  const auto connect = [&](const NcclTuning& with, std::unique_ptr<Nccl>& nccl) -> absl::Status {
    if (nccl != nullptr) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(
        nccl, Nccl::Create(
                  gang.rank(), gang.num_ranks(),
                  [&](const std::string& bytes) { return gang.BroadcastFromLeader(bytes); }, with));
    return absl::OkStatus();
  };
  LASTFLOP_RETURN_IF_ERROR(connect({}, context_.nccl));
  return tuning == NcclTuning{} ? absl::OkStatus()
                                : connect(tuning, context_.tuned_nccl[NcclTuningText(tuning)]);
}

absl::Status CudaBackend::ConnectPeers(const Plan& plan, Gang& gang) {
  if (context_.peers == nullptr && context_.peers_status.ok()) {
    absl::StatusOr<std::unique_ptr<CudaPeerCommunicator>> peers =
        CudaPeerCommunicator::Create(gang, {});
    context_.peers_status = peers.status();
    if (peers.ok()) {
      context_.peers = *std::move(peers);
    } else if (!absl::IsUnimplemented(peers.status())) {
      return peers.status();
    }
  }
  const bool exchanges = IsDataAttention(plan);
  const bool can_do_without = !exchanges && !plan.collectives.fuse_norm &&
                              plan.collectives.all_reduce == AllReduceAlgorithm::kAuto;
  if (context_.peers != nullptr || can_do_without) {
    return absl::OkStatus();
  }
  const std::string choice =
      exchanges ? absl::StrCat("collectives.all_to_all=", ToWord(plan.collectives.all_to_all))
                : absl::StrCat("collectives.all_reduce=", ToWord(plan.collectives.all_reduce));
  return absl::UnimplementedError(
      absl::StrCat(choice, ": ", std::string(context_.peers_status.message())));
}

// What the all-reduces of a step run as; all have its hidden states' size.
absl::Status CudaBackend::ResolveCollectives(CudaStep& step) {
  const Plan::Collectives& collectives = step.plan.collectives;
  step.nccl = context_.nccl.get();
  if (step.shard || options_.experts_only || step.plan.parallel.tensor == 1 || step.is_idle() ||
      step.layout.data_attention) {
    return absl::OkStatus();
  }
  const int64_t bytes = step.step.num_tokens * step.model.hidden_size * 2;
  LASTFLOP_ASSIGN_OR_RETURN(
      step.all_reduce, ResolveCudaAllReduce(collectives.all_reduce, bytes,
                                            step.plan.parallel.tensor, context_.peers != nullptr));
  if (!(collectives.nccl == NcclTuning{})) {
    step.nccl = context_.tuned_nccl.at(NcclTuningText(collectives.nccl)).get();
  }
  return collectives.fuse_norm ? FuseNorms(step, *context_.peers) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Arm>> CudaBackend::Prepare(const Plan& plan, const Point& point,
                                                          Gang& gang) {
  // What every rank finds alike comes first; from the exchange below on, ranks stay together.
  LASTFLOP_RETURN_IF_ERROR(CheckPlan(plan, point, gang));
  LASTFLOP_RETURN_IF_ERROR(Connect(plan, gang));
  absl::StatusOr<std::unique_ptr<CudaStep>> step =
      LoadCudaStep(InputsOf(plan, point, gang.rank(), layers_kept_), *store_, context_);
  if (step.ok()) {
    if (const absl::Status resolved = ResolveCollectives(**step); !resolved.ok()) {
      step = resolved;
    }
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> failures,
                            gang.AllGather(step.ok() ? 0.0 : 1.0));
  LASTFLOP_RETURN_IF_ERROR(step.status());
  const auto failed = std::find(failures.begin(), failures.end(), 1.0);
  if (failed != failures.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", failed - failures.begin(), " could not make the plan ready"));
  }
  return CudaArm::Create(*std::move(step), options_, gang,
                         {.context = &context_,
                          .telemetry = telemetry_.get(),
                          .evictor = &evictor_,
                          .l2_bytes = l2_bytes_,
                          .host_store = host_store_.get(),
                          .pool = pool_.get()});
}

std::map<std::string, std::string> CudaBackend::Environment() {
  int runtime = 0;
  int driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  std::map<std::string, std::string> environment = {
      {"backend", "cuda"},
      {"gpu", device_name_},
      {"gpu_uuid", uuid_},
      {"architecture", architecture_},
      {"cuda_runtime", VersionText(runtime)},
      {"cuda_driver", VersionText(driver)},
      {"cublaslt", absl::StrCat(context_.cublas_lt->version())},
      {"l2_mib", absl::StrFormat("%.1f", static_cast<double>(l2_bytes_) / 1024 / 1024)},
      {"memory_gib_of_rank", absl::StrFormat("%.1f", byte_budget_ / kBytesPerGib)},
      {"data", options_.measure.zeros ? "zeros" : "random"}};
  if (options_.plugins != nullptr) {
    environment.merge(options_.plugins->Environment());
  }
  if (context_.nccl != nullptr) {
    environment["nccl"] = absl::StrCat(context_.nccl->version());
  }
  environment.merge(telemetry_->Summary());
  return environment;
}

std::string CudaBackend::DataChecksum() {
  return ChecksumOfData(options_.data_seed, options_.model.vocab_size, options_.measure.zeros);
}

}  // namespace lastflop
