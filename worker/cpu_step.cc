#include "worker/cpu_step.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/dequant/dequant.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fused_moe/fused_moe.h"
#include "kernels/gemm/gemm.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/head_gemm/head_gemm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/router/router.h"
#include "kernels/sample/sample.h"
#include "step/make_step.h"
#include "step/tensors.h"
#include "step/work.h"
#include "worker/cpu_plugin.h"
#include "worker/kv_place.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

// The system hands out memory at its first touch, which would else be timed with the op.
void TouchPages(AlignedBuffer& buffer, ThreadPool& pool) {
  constexpr size_t kPage = 4096;
  const auto num_pages = static_cast<int64_t>((buffer.bytes() + kPage - 1) / kPage);
  constexpr int64_t kTaskPages = 512;
  pool.ParallelFor((num_pages + kTaskPages - 1) / kTaskPages, [&](int64_t task, int /*thread*/) {
    const int64_t end = std::min(num_pages, (task + 1) * kTaskPages);
    for (int64_t page = task * kTaskPages; page < end; ++page) {
      buffer.data()[static_cast<size_t>(page) * kPage] = std::byte{0};
    }
  });
}

// Loads what each kind of op needs, and finds the largest workspace.
class OpLoader {
 public:
  OpLoader(const CpuStepInputs& inputs, CpuStep& step, CpuBufferStore& store, ThreadPool& pool)
      : inputs_(inputs), step_(step), store_(store), pool_(pool) {}

  absl::Status Load(const Op& op, CpuOp& cpu_op) {
    op_ = &op;
    cpu_op_ = &cpu_op;
    return std::visit([this](const auto& shape) { return LoadShape(shape); }, op.shape);
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  absl::Status LoadShape(const EmbeddingShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateEmbedding(shape));
    return LoadInto(PlaceOfEmbedding(inputs_.model, shape, inputs_.data), cpu_op_->weights);
  }

  absl::Status LoadShape(const NormShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateRmsNorm(shape));
    return LoadInto(PlaceOfGain(op_->weight, op_->layer, shape.size, inputs_.data),
                    cpu_op_->weights);
  }

  absl::Status LoadShape(const GemmShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateGemm(shape));
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
    LASTFLOP_RETURN_IF_ERROR(LoadInto(place, cpu_op_->weights));
    Need(GemmWorkspaceBytes(shape, cpu_op_->weights->layout()));
    return shape.bias ? LoadInto(PlaceOfBias(place), cpu_op_->bias) : absl::OkStatus();
  }

  absl::Status LoadShape(const HeadGemmShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateHeadGemm(shape));
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, {}));
    return LoadInto(place, cpu_op_->weights);
  }

  absl::Status LoadShape(const RopeShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateRope(shape));
    if (!step_.rope.has_value()) {
      step_.rope.emplace(shape);
    }
    return LoadCache(AttentionOf(shape));
  }

  absl::Status LoadShape(const AttentionShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateAttention(shape));
    Need(AttentionWorkspaceBytes(shape, pool_.num_threads()));
    return LoadCache(shape);
  }

  absl::Status LoadShape(const RouterShape& shape) { return ValidateRouter(shape); }

  absl::Status LoadShape(const PermuteShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidatePermute(shape));
    step_.pairs.emplace(shape);
    return absl::OkStatus();
  }

  absl::Status LoadShape(const PadShape& /*shape*/) {
    return absl::UnimplementedError("moe.kernel=cublaslt: the CPU backend has no CUDA library");
  }

  absl::Status LoadShape(const ExpertGemmShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateGroupedGemm(shape));
    LASTFLOP_RETURN_IF_ERROR(LoadExperts(op_->weight, shape.storage, cpu_op_->weights,
                                         cpu_op_->dequantized, cpu_op_->dequantized_data));
    Need(GroupedGemmWorkspaceBytes(shape, *cpu_op_->expert_weights().layout));
    return absl::OkStatus();
  }

  absl::Status LoadShape(const ActivationShape& /*shape*/) { return absl::OkStatus(); }
  absl::Status LoadShape(const CombineShape& /*shape*/) { return absl::OkStatus(); }

  absl::Status LoadShape(const FusedMoeShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateFusedMoe(shape));
    if (IsPluginOp(*op_)) {
      LASTFLOP_RETURN_IF_ERROR(LoadCpuPlugin(inputs_, shape, step_, store_, pool_, *cpu_op_));
      Need(cpu_op_->plugin->needs().workspace_bytes + static_cast<int64_t>(kPluginGuardBytes));
      return absl::OkStatus();
    }
    LASTFLOP_RETURN_IF_ERROR(LoadExperts(Weight::kExpertGateUp, shape.storage, cpu_op_->weights,
                                         cpu_op_->dequantized, cpu_op_->dequantized_data));
    LASTFLOP_RETURN_IF_ERROR(LoadExperts(Weight::kExpertDown, shape.storage, cpu_op_->down_weights,
                                         cpu_op_->down_dequantized,
                                         cpu_op_->down_dequantized_data));
    Need(FusedMoeWorkspaceBytes(shape, *cpu_op_->expert_weights().layout,
                                *cpu_op_->expert_down_weights().layout));
    return absl::OkStatus();
  }

  absl::Status LoadShape(const DequantShape& shape) {
    LASTFLOP_RETURN_IF_ERROR(ValidateDequant(shape));
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(op_->weight, shape.storage));
    LASTFLOP_RETURN_IF_ERROR(LoadInto(place, cpu_op_->weights));
    return LoadDequantized(op_->weight, cpu_op_->dequantized, cpu_op_->dequantized_data);
  }

  absl::Status LoadShape(const AllReduceShape& /*shape*/) { return absl::OkStatus(); }
  absl::Status LoadShape(const AllToAllShape& /*shape*/) { return absl::OkStatus(); }
  absl::Status LoadShape(const StageTransferShape& shape) {
    if (shape.tokens && shape.receive) {
      step_.sampled.assign(static_cast<size_t>(shape.elements / 2), 0);
    }
    return absl::OkStatus();
  }
  absl::Status LoadShape(const SampleShape& shape) {
    step_.sampled.assign(static_cast<size_t>(shape.num_tokens), 0);
    return ValidateSample(shape);
  }

  void Need(int64_t bytes) { workspace_bytes_ = std::max(workspace_bytes_, bytes); }

  absl::StatusOr<WeightPlace> Place(Weight weight, const WeightStorage& storage) {
    return PlaceOfWeight(inputs_.model, step_.layout, weight, op_->layer, storage, inputs_.data);
  }

  absl::Status LoadInto(const WeightPlace& place, std::optional<CpuWeights>& weights) {
    LASTFLOP_ASSIGN_OR_RETURN(CpuWeights loaded, CpuWeights::Load(place, store_, pool_));
    weights.emplace(std::move(loaded));
    return absl::OkStatus();
  }

  // Expert weights as stored, or the copies that a dequant op makes of them.
  absl::Status LoadExperts(Weight weight, const WeightStorage& storage,
                           std::optional<CpuWeights>& weights,
                           std::optional<PackedLayout>& dequantized,
                           CpuBufferStore::Shared& dequantized_data) {
    if (op_->weights_dequantized) {
      return LoadDequantized(weight, dequantized, dequantized_data);
    }
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(weight, storage));
    return LoadInto(place, weights);
  }

  // One buffer for all layers: a layer's copies are read before the next one's are made.
  absl::Status LoadDequantized(Weight weight, std::optional<PackedLayout>& dequantized,
                               CpuBufferStore::Shared& dequantized_data) {
    LASTFLOP_ASSIGN_OR_RETURN(const WeightPlace place, Place(weight, {}));
    LASTFLOP_ASSIGN_OR_RETURN(
        PackedLayout layout,
        PackedLayout::Create({}, place.num_matrices, place.part_rows, place.cols));
    LASTFLOP_ASSIGN_OR_RETURN(dequantized_data,
                              store_.Get(absl::StrCat("dequantized ", static_cast<int>(weight),
                                                      " bytes ", layout.bytes()),
                                         layout.bytes(), [this](AlignedBuffer& buffer) {
                                           TouchPages(buffer, pool_);
                                           return absl::OkStatus();
                                         }));
    dequantized.emplace(std::move(layout));
    return absl::OkStatus();
  }

  absl::Status LoadCache(const AttentionShape& shape) {
    for (int64_t i = 0; i < step_.step.micro_batches; ++i) {
      const KvSlice slice = KvSliceOf(inputs_.model, step_.layout, shape,
                                      step_.first_sequence() + i * shape.num_sequences);
      LASTFLOP_ASSIGN_OR_RETURN(CpuKvCache cache, CpuKvCache::Load(shape, slice, op_->layer,
                                                                   inputs_.data, store_, pool_));
      cpu_op_->caches.push_back(std::move(cache));
    }
    cpu_op_->cache = cpu_op_->caches.front();
    return absl::OkStatus();
  }

  const CpuStepInputs& inputs_;
  CpuStep& step_;
  CpuBufferStore& store_;
  ThreadPool& pool_;
  const Op* op_ = nullptr;
  CpuOp* cpu_op_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

void ReadExpertRow(const std::optional<CpuWeights>& weights,
                   const std::optional<PackedLayout>& copies_layout,
                   const CpuBufferStore::Shared& copies, int64_t matrix, int64_t row,
                   std::span<float> out) {
  if (copies != nullptr) {
    UnpackRow({.layout = &*copies_layout, .data = copies->data()}, matrix, row, out);
  } else if (weights->has_memory()) {
    UnpackRow(weights->packed(), matrix, row, out);
  } else {
    weights->ReferenceRow(matrix, row, out);
    if (copies_layout.has_value()) {
      std::transform(out.begin(), out.end(), out.begin(), RoundToBf16);
    }
  }
}

absl::Status AllocateTensors(CpuStep& step) {
  for (const auto& [tensor, bytes] : TensorBytes(step.step)) {
    // Kept elsewhere: routing and pairs by their own types, dequantized weights by the store.
    if (tensor == Tensor::kRouting || tensor == Tensor::kPairs || tensor == Tensor::kTokenIds ||
        tensor == Tensor::kSampled || tensor == Tensor::kDequantGateUp ||
        tensor == Tensor::kDequantDown) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(
        step.tensors[tensor],
        AlignedBuffer::Create(static_cast<size_t>(bytes) + GuardBytes(step.plan, tensor)));
  }
  return absl::OkStatus();
}

// Places for what the other micro-batches have of their own.
absl::Status AllocateMicroBatches(CpuStep& step) {
  step.micro_batches.resize(static_cast<size_t>(step.step.micro_batches));
  for (size_t i = 1; i < step.micro_batches.size(); ++i) {
    CpuMicroBatch& other = step.micro_batches[i];
    other.drawn_scores = step.drawn_scores;
    other.routing = step.routing;
    other.sampled = step.sampled;
    LASTFLOP_ASSIGN_OR_RETURN(other.output,
                              AlignedBuffer::Create(step.tensors.at(step.step.output).bytes()));
  }
  return absl::OkStatus();
}

// What one rank says of its stage, and hears of the one before, in one message at most.
int64_t MessageElements(const CpuStep& step) {
  const int64_t sequences = SequencesOfReplica(step.point.batch, NumReplicas(step.plan), 0);
  const int64_t parts = step.plan.parallel.micro_batches;
  return 2 * (sequences + parts - 1) / parts * QueryTokens(step.plan, step.point) *
         step.model.hidden_size;
}

absl::Status ConnectStages(Gang& gang, CpuStep& step) {
  StageLink::Options options;
  options.max_elements = MessageElements(step);
  options.slots = step.plan.parallel.micro_batches;
  options.share_cores = step.pool->shared_cores();
  if (!step.is_idle()) {
    // Around: the last stage's tokens go to the first.
    const auto num_ranks = static_cast<int>(step.plan.num_ranks());
    const auto stage_ranks = static_cast<int>(num_ranks / step.plan.parallel.pipeline);
    options.to = (gang.rank() + stage_ranks) % num_ranks;
    options.from = (gang.rank() + num_ranks - stage_ranks) % num_ranks;
  }
  LASTFLOP_ASSIGN_OR_RETURN(step.stage_link, StageLink::Create(gang, options));
  LASTFLOP_ASSIGN_OR_RETURN(step.stage_witness, StageLink::Create(gang, options));
  return absl::OkStatus();
}

// Room for what a dispatch can bring: every rank's tokens, each counted as the most loaded rank's.
absl::Status AllocateReceived(CpuStep& step) {
  if (!step.layout.data_attention) {
    return absl::OkStatus();
  }
  const int64_t most = SequencesOfReplica(step.point.batch, step.layout.num_replicas, 0) *
                       QueryTokens(step.plan, step.point) * step.layout.num_replicas;
  const auto slots = static_cast<size_t>(most * step.model.top_k);
  step.received_ids.resize(slots);
  step.received_weights.resize(slots);
  const auto row_bytes = static_cast<size_t>(most * step.model.hidden_size) * sizeof(Bf16);
  LASTFLOP_ASSIGN_OR_RETURN(step.tensors[Tensor::kExpertInput], AlignedBuffer::Create(row_bytes));
  LASTFLOP_ASSIGN_OR_RETURN(
      step.tensors[Tensor::kExpertSum],
      AlignedBuffer::Create(row_bytes + GuardBytes(step.plan, Tensor::kExpertSum)));
  return absl::OkStatus();
}

void AllocateRouting(CpuStep& step, int num_moe_layers) {
  const auto slots = static_cast<size_t>(step.step.num_tokens * step.model.top_k);
  for (int i = 0; i < num_moe_layers; ++i) {
    step.routing.push_back({std::vector<int32_t>(slots, -1), std::vector<float>(slots, 0.0F)});
  }
  step.drawn_scores.resize(static_cast<size_t>(num_moe_layers));
  if (step.model.router.has_bias) {
    step.router_bias.assign(static_cast<size_t>(step.model.num_experts), 0.0F);
  }
}

}  // namespace

absl::Status AllocateCpuActivations(CpuStep& step) {
  LASTFLOP_RETURN_IF_ERROR(AllocateTensors(step));
  LASTFLOP_RETURN_IF_ERROR(AllocateReceived(step));
  const std::vector<int> moe_indices = MoeIndices(step.model, step.step);
  const auto last = std::max_element(moe_indices.begin(), moe_indices.end());
  AllocateRouting(step, last == moe_indices.end() ? 0 : *last + 1);
  return absl::OkStatus();
}

std::vector<int> MoeIndices(const Model& model, const Step& step) {
  std::vector<int> indices;
  int num_moe_layers = 0;
  int last_layer = -1;
  for (const Op& op : step.ops) {
    const bool is_moe =
        op.layer >= 0 && model.layer_kinds[static_cast<size_t>(op.layer)] == LayerKind::kMoe;
    num_moe_layers += is_moe && op.layer != last_layer ? 1 : 0;
    last_layer = op.layer;
    indices.push_back(is_moe ? num_moe_layers - 1 : -1);
  }
  return indices;
}

void CpuStep::SelectMicroBatch(int64_t index) {
  if (index == micro_batch) {
    return;
  }
  for (const int64_t exchanged : {micro_batch, index}) {
    CpuMicroBatch& place = micro_batches[static_cast<size_t>(exchanged)];
    std::swap(token_ids, place.token_ids);
    std::swap(drawn_scores, place.drawn_scores);
    std::swap(routing, place.routing);
    std::swap(sampled, place.sampled);
    std::swap(tensors.at(step.output), place.output);
  }
  micro_batch = index;
  for (CpuOp& op : ops) {
    if (!op.caches.empty()) {
      op.cache = op.caches[static_cast<size_t>(index)];
    }
  }
}

StageMessage MessageOf(CpuStep& step, const Op& op, const StageTransferShape& shape) {
  const auto words = [](auto values) {
    return std::span(reinterpret_cast<uint16_t*>(values.data()),
                     values.size_bytes() / sizeof(uint16_t));
  };
  if (shape.tokens) {
    return {.first = words(std::span(step.sampled)), .second = {}};
  }
  const int64_t count = shape.elements / 2;
  return {.first = words(step.As<Bf16>(shape.receive ? op.out : op.in, count)),
          .second = words(step.As<Bf16>(op.in2, count))};
}

size_t GuardBytes(const Plan& plan, Tensor tensor) {
  const bool is_written = tensor == Tensor::kHidden || tensor == Tensor::kExpertSum;
  return plan.moe.kernel == MoeKernel::kPlugin && is_written ? kPluginGuardBytes : 0;
}

void CpuOp::ExpertRow(int64_t matrix, int64_t row, std::span<float> out) const {
  ReadExpertRow(weights, dequantized, dequantized_data, matrix, row, out);
}

void CpuOp::ExpertDownRow(int64_t matrix, int64_t row, std::span<float> out) const {
  ReadExpertRow(down_weights, down_dequantized, down_dequantized_data, matrix, row, out);
}

PackedWeights CpuOp::expert_weights() const {
  return dequantized.has_value()
             ? PackedWeights{.layout = &*dequantized, .data = dequantized_data->data()}
             : weights->packed();
}

PackedWeights CpuOp::expert_down_weights() const {
  return down_dequantized.has_value()
             ? PackedWeights{.layout = &*down_dequantized, .data = down_dequantized_data->data()}
             : down_weights->packed();
}

int64_t CpuStep::num_sequences() const {
  return SequencesOfReplica(point.batch, layout.num_replicas, layout.replica);
}

int64_t CpuStep::first_sequence() const {
  int64_t first = 0;
  for (int64_t replica = 0; replica < layout.replica; ++replica) {
    first += SequencesOfReplica(point.batch, layout.num_replicas, replica);
  }
  return first;
}

PairList CpuStep::pair_list() {
  PairList list = pairs->list();
  const auto slots = static_cast<size_t>(expert_tokens() * model.top_k);
  list.token = list.token.first(slots);
  list.weight = list.weight.first(slots);
  list.pair_of = list.pair_of.first(slots);
  return list;
}

absl::StatusOr<std::unique_ptr<CpuStep>> LoadCpuStep(const CpuStepInputs& inputs,
                                                     CpuBufferStore& store, ThreadPool& pool) {
  auto step = std::make_unique<CpuStep>();
  step->model = inputs.model;
  step->plan = inputs.plan;
  step->point = inputs.point;
  step->pool = &pool;
  if (inputs.rank >= inputs.plan.num_ranks()) {
    return step;
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      step->step,
      MakeStep(
          inputs.model, inputs.plan, inputs.point, inputs.rank,
          {.layers_kept = inputs.layers_kept, .load = {}, .experts_only = inputs.experts_only}));
  step->layout = MakeLayout(inputs.model, inputs.plan, inputs.rank);
  OpLoader loader(inputs, *step, store, pool);
  step->ops.resize(step->step.ops.size());
  const std::vector<int> moe_indices = MoeIndices(inputs.model, step->step);
  for (size_t i = 0; i < step->ops.size(); ++i) {
    step->ops[i].op = &step->step.ops[i];
    step->ops[i].moe_index = moe_indices[i];
    LASTFLOP_RETURN_IF_ERROR(loader.Load(step->step.ops[i], step->ops[i]));
  }
  LASTFLOP_RETURN_IF_ERROR(AllocateCpuActivations(*step));
  LASTFLOP_RETURN_IF_ERROR(AllocateMicroBatches(*step));
  LASTFLOP_ASSIGN_OR_RETURN(step->workspace,
                            AlignedBuffer::Create(static_cast<size_t>(loader.workspace_bytes())));
  return step;
}

absl::Status ConnectCpuStep(Gang& gang, CpuStep& step) {
  if (step.step.experts_only) {
    return absl::OkStatus();
  }
  const auto num_ranks = static_cast<int>(step.plan.num_ranks());
  std::vector<int> idle_ranks;
  for (int rank = num_ranks; rank < gang.num_ranks(); ++rank) {
    idle_ranks.push_back(rank);
  }
  CpuCommunicator::Options options;
  options.share_cores = step.pool->shared_cores();
  options.parallel_for = [pool = step.pool](int64_t count,
                                            absl::FunctionRef<void(int64_t, int64_t)> fn) {
    const int64_t parts = pool->num_threads();
    pool->ParallelFor(parts, [&](int64_t part, int /*thread*/) {
      fn(count * part / parts, count * (part + 1) / parts);
    });
  };
  const bool data_attention = IsDataAttention(step.plan);
  if (!data_attention && step.plan.parallel.tensor > 1) {
    options.ranks = step.is_idle() ? idle_ranks : step.layout.tensor_group;
    LASTFLOP_ASSIGN_OR_RETURN(step.tensor_ranks, CpuCommunicator::Create(gang, options));
  }
  if (data_attention) {
    options.ranks = step.is_idle() ? idle_ranks : step.layout.expert_ranks;
    options.max_tokens = SequencesOfReplica(step.point.batch, NumReplicas(step.plan), 0) *
                         QueryTokens(step.plan, step.point);
    options.hidden_size = step.model.hidden_size;
    options.top_k = step.model.top_k;
    LASTFLOP_ASSIGN_OR_RETURN(step.expert_ranks, CpuCommunicator::Create(gang, options));
  }
  return step.plan.parallel.pipeline > 1 ? ConnectStages(gang, step) : absl::OkStatus();
}

double ColdBytesOf(const CpuStep& step, double unique_experts) {
  double bytes = 0;
  for (const CpuOp& op : step.ops) {
    const Work work = WorkOf(op.op->shape, {.pairs = 0, .unique_experts = unique_experts});
    bytes += work.weight_bytes + work.cache_bytes;
  }
  return bytes;
}

}  // namespace lastflop
