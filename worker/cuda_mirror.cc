#include "worker/cuda_mirror.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <variant>

#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/attention.h"
#include "kernels/cuda/panel.h"
#include "kernels/rope/rope.h"
#include "step/padded_experts.h"
#include "worker/cuda_plugin.h"
#include "worker/cuda_run_op.h"
#include "worker/cuda_weights.h"

namespace lastflop {
namespace {

// The attention shape whose cache an op uses; nullopt without one.
std::optional<AttentionShape> CacheShapeOf(const Op& op) {
  if (const auto* rope = std::get_if<RopeShape>(&op.shape)) {
    return AttentionOf(*rope);
  }
  if (const auto* attention = std::get_if<AttentionShape>(&op.shape)) {
    return *attention;
  }
  return std::nullopt;
}

// Whether the op writes all of its output and reads none of it: it can be poisoned whole.
bool IsOverwritten(const Op& op) {
  if (const auto* norm = std::get_if<NormShape>(&op.shape)) {
    return op.in != op.out && norm->parts == 1;
  }
  return std::holds_alternative<EmbeddingShape>(op.shape) ||
         std::holds_alternative<GemmShape>(op.shape) ||
         std::holds_alternative<AttentionShape>(op.shape) ||
         std::holds_alternative<PadShape>(op.shape) ||
         std::holds_alternative<ExpertGemmShape>(op.shape) ||
         std::holds_alternative<ActivationShape>(op.shape) ||
         std::holds_alternative<CombineShape>(op.shape) ||
         std::holds_alternative<FusedMoeShape>(op.shape) ||
         std::holds_alternative<AllToAllShape>(op.shape);
}

// Whether its rows are those of received tokens.
bool IsOfReceived(const CudaStep& step, Tensor tensor) {
  return step.layout.data_attention &&
         (tensor == Tensor::kExpertInput || tensor == Tensor::kExpertSum);
}

// Whether its rows are those of PadShape's `out`.
bool IsPadded(const CudaStep& step, Tensor tensor) {
  return step.plan.moe.kernel == MoeKernel::kCublaslt &&
         (tensor == Tensor::kExpertPadded || tensor == Tensor::kExpertGateUp ||
          tensor == Tensor::kExpertAct || tensor == Tensor::kExpertOut);
}

// The host's copy of an op has pairs one after the other, where the device's has padded rows.
void RemovePadding(int64_t num_slots, Op& op) {
  if (auto* pad = std::get_if<PadShape>(&op.shape)) {
    pad->padded_rows = 0;
  } else if (auto* gemm = std::get_if<ExpertGemmShape>(&op.shape)) {
    gemm->padded_rows = 0;
  } else if (auto* combine = std::get_if<CombineShape>(&op.shape)) {
    combine->is_padded = false;
  } else if (auto* swiglu = std::get_if<ActivationShape>(&op.shape);
             swiglu != nullptr && std::exchange(swiglu->is_padded, false)) {
    swiglu->rows = num_slots;
  }
}

bool IsDispatch(const Op& op) {
  const auto* exchange = std::get_if<AllToAllShape>(&op.shape);
  return exchange != nullptr && !exchange->combine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMirror>> CudaMirror::Create(const CudaStepInputs& inputs,
                                                               CudaStep& device_step,
                                                               CudaContext& context, Gang& gang,
                                                               CpuBufferStore& store,
                                                               ThreadPool& pool) {
  std::unique_ptr<CudaMirror> mirror(new CudaMirror(device_step, context));
  LASTFLOP_RETURN_IF_ERROR(mirror->Load(inputs, store, pool));
  if (!device_step.shard) {
    LASTFLOP_RETURN_IF_ERROR(ConnectCpuStep(gang, mirror->host_));
  }
  return mirror;
}

absl::Status CudaMirror::Load(const CudaStepInputs& inputs, CpuBufferStore& store,
                              ThreadPool& pool) {
  host_.model = device_.model;
  host_.plan = device_.plan;
  host_.point = device_.point;
  host_.pool = &pool;
  if (device_.is_idle()) {
    return absl::OkStatus();
  }
  host_.layout = device_.layout;
  host_.step = device_.step;
  for (Op& op : host_.step.ops) {
    // The one rank of a shard chooses among its own candidates.
    if (auto* sample = std::get_if<SampleShape>(&op.shape); sample != nullptr && device_.shard) {
      sample->ranks = 1;
    }
    RemovePadding(device_.num_expert_tokens() * device_.model.top_k, op);
  }
  host_.ops.resize(device_.ops.size());
  host_.run_op = [this](CpuOp& op) { return RunOnDevice(op); };
  for (size_t i = 0; i < host_.ops.size(); ++i) {
    LASTFLOP_RETURN_IF_ERROR(LoadOp(inputs, i, store, pool));
  }
  return AllocateCpuActivations(host_);
}

absl::Status CudaMirror::LoadOp(const CudaStepInputs& inputs, size_t index, CpuBufferStore& store,
                                ThreadPool& pool) {
  const Op& op = host_.step.ops[index];
  CpuOp& mirrored = host_.ops[index];
  mirrored.op = &op;
  mirrored.moe_index = device_.ops[index].moe_index;
  const auto load = [&](const WeightPlace& place,
                        std::optional<CpuWeights>& weights) -> absl::Status {
    LASTFLOP_ASSIGN_OR_RETURN(CpuWeights loaded, place.form == WeightForm::kRows
                                                     ? CpuWeights::Load(place, store, pool)
                                                     : CpuWeights::Describe(place));
    weights.emplace(std::move(loaded));
    return absl::OkStatus();
  };
  const auto place_of = [&](Weight weight, const WeightStorage& storage) {
    return PlaceOfWeight(inputs.model, host_.layout, weight, op.layer, storage, inputs.data);
  };
  // Of separately dequantized experts the quantized values and that they were rounded to bf16.
  const auto load_experts = [&](Weight weight, std::optional<CpuWeights>& weights,
                                std::optional<PackedLayout>& copies) -> absl::Status {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place,
                              place_of(weight, ExpertStorage(inputs.model, inputs.plan)));
    LASTFLOP_RETURN_IF_ERROR(load(place, weights));
    if (op.weights_dequantized || std::holds_alternative<DequantShape>(op.shape)) {
      LASTFLOP_ASSIGN_OR_RETURN(
          copies, PackedLayout::Create({}, place.num_matrices, place.part_rows, place.cols));
    }
    return absl::OkStatus();
  };
  if (const auto* embedding = std::get_if<EmbeddingShape>(&op.shape)) {
    return load(PlaceOfEmbedding(inputs.model, *embedding, inputs.data), mirrored.weights);
  }
  if (const auto* norm = std::get_if<NormShape>(&op.shape)) {
    return load(PlaceOfGain(op.weight, op.layer, norm->size, inputs.data), mirrored.weights);
  }
  if (const auto* gemm = std::get_if<GemmShape>(&op.shape)) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, place_of(op.weight, gemm->storage));
    LASTFLOP_RETURN_IF_ERROR(load(place, mirrored.weights));
    return gemm->bias ? load(PlaceOfBias(place), mirrored.bias) : absl::OkStatus();
  }
  if (std::holds_alternative<HeadGemmShape>(op.shape)) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, place_of(op.weight, {}));
    return load(place, mirrored.weights);
  }
  if (std::holds_alternative<ExpertGemmShape>(op.shape)) {
    return load_experts(op.weight, mirrored.weights, mirrored.dequantized);
  }
  if (std::holds_alternative<DequantShape>(op.shape)) {
    mirrored.read_copy = [this, index](int64_t matrix, int64_t row, std::span<float> out) {
      return ReadCopy(index, matrix, row, out);
    };
    return load_experts(op.weight, mirrored.weights, mirrored.dequantized);
  }
  if (std::holds_alternative<FusedMoeShape>(op.shape)) {
    LASTFLOP_RETURN_IF_ERROR(
        load_experts(Weight::kExpertGateUp, mirrored.weights, mirrored.dequantized));
    return load_experts(Weight::kExpertDown, mirrored.down_weights, mirrored.down_dequantized);
  }
  if (const auto* permute = std::get_if<PermuteShape>(&op.shape)) {
    host_.pairs.emplace(*permute);
    return absl::OkStatus();
  }
  if (const auto* sample = std::get_if<SampleShape>(&op.shape)) {
    host_.sampled.assign(static_cast<size_t>(sample->num_tokens), 0);
    return absl::OkStatus();
  }
  if (const auto cache = CacheShapeOf(op); cache.has_value()) {
    LASTFLOP_ASSIGN_OR_RETURN(CpuKvCache empty, CpuKvCache::Empty(*cache, store));
    mirrored.cache.emplace(std::move(empty));
    mirrored.fetch_cache = [this, index](std::span<const int64_t> sequences) {
      return FetchCache(index, sequences);
    };
  }
  return absl::OkStatus();
}

absl::StatusOr<OpCheck> CudaMirror::Check(size_t index, uint64_t sample_seed) {
  const Op& op = host_.step.ops[index];
  if (!RunsOnDevice(device_, op) && !std::holds_alternative<PermuteShape>(op.shape)) {
    return OpCheck{};
  }
  LASTFLOP_RETURN_IF_ERROR(Download(index));
  if (device_.ops[index].reduces_first) {
    // The device keeps the ranks' parts; the reference norms their sum.
    auto& in = host_.tensors.at(op.in);
    const auto count = static_cast<size_t>(device_.step.num_tokens * device_.model.hidden_size);
    LASTFLOP_RETURN_IF_ERROR(
        host_.tensor_ranks
            ->AllReduce(std::span(reinterpret_cast<uint16_t*>(in.data()), count),
                        AllReduceAlgorithm::kOneShot)
            .status());
  }
  trespass_.reset();
  LASTFLOP_ASSIGN_OR_RETURN(OpCheck check,
                            CheckCpuOp(host_, host_.ops[index], sample_seed, /*after_op=*/nullptr));
  if (trespass_.has_value()) {
    check = {.error = std::numeric_limits<double>::infinity(), .tolerance = 0, .what = *trespass_};
  }
  return check;
}

absl::Status CudaMirror::Copy(void* host, void* device, size_t bytes, bool to_device) {
  if (bytes == 0) {
    return absl::OkStatus();
  }
  return CudaStatus(
      to_device
          ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, context_.stream.get())
          : cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, context_.stream.get()),
      "copying for a check");
}

absl::Status CudaMirror::CopyTensor(Tensor tensor, bool to_device) {
  const auto on_host = host_.tensors.find(tensor);
  const auto on_device = device_.tensors.find(tensor);
  if (on_host == host_.tensors.end() || on_device == device_.tensors.end()) {
    return absl::OkStatus();
  }
  fresh_.insert(tensor);
  if (IsOfReceived(device_, tensor)) {
    return to_device ? absl::InternalError("received rows are made on the device")
                     : FetchReceivedRows(tensor);
  }
  if (IsPadded(device_, tensor)) {
    return to_device ? absl::InternalError("padded rows are made on the device")
                     : FetchPaddedRows(tensor);
  }
  return Copy(on_host->second.data(), on_device->second->data(),
              std::min(on_host->second.bytes(), on_device->second->bytes()), to_device);
}

absl::Status CudaMirror::CopyPairs(bool to_device) {
  if (device_.layout.data_attention) {
    if (!to_device) {
      return FetchReceivedPairs();
    }
    // A permutation's output, to be poisoned: numbers of tokens and pairs that are not there.
    return CudaStatus(cudaMemsetAsync(device_.pairs_memory->data(), 0xFF,
                                      device_.pairs_memory->bytes(), context_.stream.get()),
                      "poisoning a permutation");
  }
  const PairList list = host_.pairs->list();
  const auto copy = [&](auto span, void* device) {
    return Copy(span.data(), device, span.size_bytes(), to_device);
  };
  LASTFLOP_RETURN_IF_ERROR(copy(list.offsets, device_.pairs.offsets));
  LASTFLOP_RETURN_IF_ERROR(copy(list.token, device_.pairs.token));
  LASTFLOP_RETURN_IF_ERROR(copy(list.weight, device_.pairs.weight));
  return copy(list.pair_of, device_.pairs.pair_of);
}

absl::Status CudaMirror::FetchPaddedRows(Tensor tensor) {
  // The device's offsets: the host's may still be those of another layer.
  const auto num_experts = static_cast<size_t>(device_.layout.num_local_experts);
  std::vector<int32_t> offsets(num_experts + 1);
  LASTFLOP_RETURN_IF_ERROR(
      Copy(offsets.data(), device_.pairs.offsets, offsets.size() * sizeof(int32_t), false));
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  const DeviceBuffer& from = *device_.tensors.at(tensor);
  auto& to = host_.tensors.at(tensor);
  const size_t expert_bytes = from.bytes() / num_experts;
  const size_t row_bytes =
      expert_bytes / static_cast<size_t>(PaddedRows(device_.num_expert_tokens()));
  for (size_t expert = 0; expert < num_experts; ++expert) {
    const int32_t count = offsets[expert + 1] - offsets[expert];
    const size_t bytes = static_cast<size_t>(std::max(count, 0)) * row_bytes;
    const size_t at = static_cast<size_t>(std::max(offsets[expert], 0)) * row_bytes;
    if (count < 0 || bytes > expert_bytes || at + bytes > to.bytes()) {
      return absl::InternalError("padded rows are read before their permutation was made");
    }
    LASTFLOP_RETURN_IF_ERROR(
        Copy(to.data() + at, from.data() + expert * expert_bytes, bytes, false));
  }
  return absl::OkStatus();
}

absl::Status CudaMirror::CopyRouting(int moe_index, bool to_device) {
  CpuRouting& host = host_.routing[static_cast<size_t>(moe_index)];
  const CudaRouting& device = device_.routing[static_cast<size_t>(moe_index)];
  LASTFLOP_RETURN_IF_ERROR(Copy(host.expert_ids.data(), device.expert_ids,
                                host.expert_ids.size() * sizeof(int32_t), to_device));
  return Copy(host.weights.data(), device.weights, host.weights.size() * sizeof(float), to_device);
}

absl::Status CudaMirror::Download(size_t index) {
  const Op& op = host_.step.ops[index];
  const int moe_index = device_.ops[index].moe_index;
  if (device_.layout.data_attention && moe_index >= 0) {
    LASTFLOP_RETURN_IF_ERROR(FetchReceived(moe_index));
  }
  std::set<Tensor> read = {op.in, op.in2};
  if (!IsOverwritten(op)) {
    read.insert(op.out);
  }
  if (op.category == OpCategory::kMoe) {
    read.insert(Tensor::kSharedOut);
  }
  for (const Tensor tensor : read) {
    if (fresh_.count(tensor) == 0) {
      LASTFLOP_RETURN_IF_ERROR(CopyTensor(tensor, /*to_device=*/false));
    }
  }
  if (op.in == Tensor::kTokenIds) {
    host_.token_ids.resize(static_cast<size_t>(device_.step.num_tokens));
    LASTFLOP_RETURN_IF_ERROR(Copy(host_.token_ids.data(), device_.At<int32_t>(Tensor::kTokenIds),
                                  host_.token_ids.size() * sizeof(int32_t), false));
  }
  if (moe_index >= 0) {
    auto& scores = host_.drawn_scores[static_cast<size_t>(moe_index)];
    scores.resize(static_cast<size_t>(device_.step.num_tokens * device_.model.num_experts));
    if (std::holds_alternative<RouterShape>(op.shape)) {
      LASTFLOP_RETURN_IF_ERROR(Copy(scores.data(), const_cast<float*>(device_.scores_of(moe_index)),
                                    scores.size() * sizeof(float), false));
    }
    LASTFLOP_RETURN_IF_ERROR(CopyRouting(moe_index, false));
    // Of a fused kernel, which makes its own list, the mirror's permutation stays.
    if (host_.pairs.has_value() && HasDevicePairs(device_)) {
      LASTFLOP_RETURN_IF_ERROR(CopyPairs(false));
    }
  }
  if (op.out == Tensor::kSampled) {
    LASTFLOP_RETURN_IF_ERROR(Copy(host_.sampled.data(), device_.At<int32_t>(Tensor::kSampled),
                                  host_.sampled.size() * sizeof(int32_t), false));
  }
  return context_.stream.Synchronize();
}

absl::Status CudaMirror::Upload(size_t index) {
  const Op& op = host_.step.ops[index];
  if (const auto found = device_.tensors.find(op.out);
      IsOverwritten(op) && found != device_.tensors.end()) {
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(found->second->data(), 0xFF, found->second->bytes(), context_.stream.get()),
        "poisoning an output");
  } else {
    LASTFLOP_RETURN_IF_ERROR(CopyTensor(op.out, /*to_device=*/true));
  }
  if (std::holds_alternative<RouterShape>(op.shape)) {
    LASTFLOP_RETURN_IF_ERROR(CopyRouting(device_.ops[index].moe_index, true));
  }
  if (IsDispatch(op)) {
    LASTFLOP_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(device_.received_memory.data(), 0xFF, device_.received_memory.bytes(),
                        context_.stream.get()),
        "poisoning what is received");
  }
  if (std::holds_alternative<PermuteShape>(op.shape)) {
    LASTFLOP_RETURN_IF_ERROR(CopyPairs(true));
  }
  if (std::holds_alternative<RopeShape>(op.shape)) {
    LASTFLOP_RETURN_IF_ERROR(SendNewPositions(index));
  }
  if (op.out == Tensor::kSampled) {
    LASTFLOP_RETURN_IF_ERROR(Copy(host_.sampled.data(), device_.At<int32_t>(Tensor::kSampled),
                                  host_.sampled.size() * sizeof(int32_t), true));
  }
  return absl::OkStatus();
}

absl::Status CudaMirror::RunOnDevice(CpuOp& op) {
  const auto index = static_cast<size_t>(&op - host_.ops.data());
  if (const auto* permute = std::get_if<PermuteShape>(&op.op->shape);
      permute != nullptr && !HasDevicePairs(device_)) {
    const CpuRouting& routing = host_.routing[static_cast<size_t>(op.moe_index)];
    PermuteShape shape = *permute;
    shape.num_tokens = host_.expert_tokens();
    const bool is_received = device_.layout.data_attention;
    const auto slots = static_cast<size_t>(shape.num_tokens * shape.top_k);
    Permute(shape, std::span(is_received ? host_.received_ids : routing.expert_ids).first(slots),
            std::span(is_received ? host_.received_weights : routing.weights).first(slots),
            host_.pair_list());
    return absl::OkStatus();
  }
  LASTFLOP_RETURN_IF_ERROR(Upload(index));
  if (device_.ops[index].plugin != nullptr) {
    LASTFLOP_ASSIGN_OR_RETURN(trespass_,
                              RunGuardedCudaPlugin(device_, device_.ops[index], context_));
    fresh_.erase(op.op->in);  // Read again, to see whether it is as it was.
  } else {
    LASTFLOP_RETURN_IF_ERROR(RunCudaOp(device_, device_.ops[index], context_));
  }
  if (IsDispatch(*op.op)) {
    LASTFLOP_RETURN_IF_ERROR(FetchReceived(op.moe_index));
  }
  // A norm writes the residual as well.
  const Tensor also = std::holds_alternative<NormShape>(op.op->shape) ? op.op->in2 : Tensor::kNone;
  for (const Tensor tensor : {op.op->out, also}) {
    LASTFLOP_RETURN_IF_ERROR(CopyTensor(tensor, /*to_device=*/false));
  }
  return Download(index);
}

absl::Status CudaMirror::FetchCache(size_t index, std::span<const int64_t> sequences) {
  const AttentionShape shape = *CacheShapeOf(host_.step.ops[index]);
  const KvCache host = host_.ops[index].cache->view();
  const DeviceKvCache device = device_.ops[index].kv();
  const auto bytes =
      static_cast<size_t>((shape.context + shape.query_tokens) * WidthsOf(shape).cache_stride *
                          CacheElementBytes(shape.cache));
  for (const int64_t sequence : std::set<int64_t>(sequences.begin(), sequences.end())) {
    const size_t at = static_cast<size_t>(sequence) * bytes;
    LASTFLOP_RETURN_IF_ERROR(
        Copy(host.keys.data() + at, static_cast<std::byte*>(device.keys) + at, bytes, false));
    if (!host.values.empty()) {
      LASTFLOP_RETURN_IF_ERROR(
          Copy(host.values.data() + at, static_cast<std::byte*>(device.values) + at, bytes, false));
    }
  }
  return context_.stream.Synchronize();
}

// The new positions of all sequences, as the check left them: poisoned where it will look.
absl::Status CudaMirror::SendNewPositions(size_t index) {
  const AttentionShape shape = *CacheShapeOf(host_.step.ops[index]);
  const KvCache host = host_.ops[index].cache->view();
  const DeviceKvCache device = device_.ops[index].kv();
  const auto row =
      static_cast<size_t>(WidthsOf(shape).cache_stride * CacheElementBytes(shape.cache));
  const size_t pitch = row * static_cast<size_t>(shape.context + shape.query_tokens);
  const size_t first = row * static_cast<size_t>(shape.context);
  const auto send = [&](std::byte* from, void* to) {
    return CudaStatus(cudaMemcpy2DAsync(static_cast<std::byte*>(to) + first, pitch, from + first,
                                        pitch, row * static_cast<size_t>(shape.query_tokens),
                                        static_cast<size_t>(shape.num_sequences),
                                        cudaMemcpyHostToDevice, context_.stream.get()),
                      "poisoning a cache");
  };
  LASTFLOP_RETURN_IF_ERROR(send(host.keys.data(), device.keys));
  return host.values.empty() ? absl::OkStatus() : send(host.values.data(), device.values);
}

// A row of bf16 panels (kernels/cuda/panel.h), block by block.
absl::Status CudaMirror::ReadCopy(size_t index, int64_t matrix, int64_t row, std::span<float> out) {
  const Op& op = host_.step.ops[index];
  const auto& shape = std::get<DequantShape>(op.shape);
  const CudaRowOrder order = RowOrderOf(op.weight);
  int64_t block = row / kRowBlock;
  auto in_block = static_cast<int>(row % kRowBlock);
  if (order == CudaRowOrder::kGateAndUp) {
    const int64_t half = shape.out_features / 2;
    block = row % half / 8;
    in_block = static_cast<int>(row % 8 + (row >= half ? 8 : 0));
  }
  const int64_t k_blocks = PanelKBlocks(WeightFormat::kBf16, shape.in_features);
  std::vector<uint16_t> panel(static_cast<size_t>(k_blocks * PanelBlockBytes(WeightFormat::kBf16)) /
                              sizeof(uint16_t));
  const std::byte* const from =
      device_.ops[index].copies->data() +
      matrix * PanelBytesOfMatrix(WeightFormat::kBf16, shape.out_features, shape.in_features) +
      block * k_blocks * PanelBlockBytes(WeightFormat::kBf16);
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(panel.data(), from, panel.size() * sizeof(uint16_t),
                                                cudaMemcpyDeviceToHost, context_.stream.get()),
                                "reading dequantized weights");
  LASTFLOP_RETURN_IF_ERROR(context_.stream.Synchronize());
  const int g = in_block % 8;
  const int high = in_block / 8;
  for (int64_t k = 0; k < shape.in_features; ++k) {
    // k = 64 b + 32 (j / 2) + 8 q + 4 (j % 2) + i: step j, lane 4 g + q, register 2 (i / 2) + high.
    const int64_t b = k / 64;
    const auto j = static_cast<int>(k % 64 / 32 * 2 + k % 8 / 4);
    const auto q = static_cast<int>(k % 32 / 8);
    const auto i = static_cast<int>(k % 4);
    const int64_t word = b * 1024 + j * 256 + (4 * g + q) * 8 + (2 * (i / 2) + high) * 2 + i % 2;
    out[static_cast<size_t>(k)] = ToFloat(Bf16{panel[static_cast<size_t>(word)]});
  }
  return absl::OkStatus();
}

}  // namespace lastflop
