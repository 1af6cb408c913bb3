#include "step/step_builder.h"

#include <algorithm>
#include <string>

#include "step/work.h"

namespace lastflop {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

StepBuilder::StepBuilder(const Model& model, const Plan& plan, const Point& point,
                         const Layout& layout, const ExpertLoad& load)
    : model_(model), plan_(plan), layout_(layout), load_(load) {
  constexpr size_t kOpsOfTwoLayers = 64;
  ops_.reserve(kOpsOfTwoLayers);
  const auto sequences_of = [&](int64_t replica) {
    return CeilDiv(SequencesOfReplica(point.batch, layout.num_replicas, replica),
                   plan.parallel.micro_batches);
  };
  num_sequences_ = sequences_of(layout.replica);
  query_tokens_ = QueryTokens(plan, point);
  context_ = point.phase == Phase::kPrefill ? 0 : point.context;
  num_tokens_ = num_sequences_ * query_tokens_;
  logit_rows_ = point.phase == Phase::kPrefill ? num_sequences_ : num_tokens_;
  expert_tokens_ = num_tokens_;
  if (layout.data_attention) {
    expert_tokens_ = 0;
    for (int64_t replica = 0; replica < layout.num_replicas; ++replica) {
      expert_tokens_ += sequences_of(replica) * query_tokens_;
    }
  }
}

void StepBuilder::AddReceiveTokens() {
  const StageTransferShape shape{.elements = 2 * logit_rows_, .receive = true, .tokens = true};
  Add("pipeline.receive_tokens", OpCategory::kCollective, shape, {.out = Tensor::kSampled});
}

void StepBuilder::AddSendTokens() {
  const StageTransferShape shape{.elements = 2 * logit_rows_, .tokens = true};
  Add("pipeline.send_tokens", OpCategory::kCollective, shape, {.in = Tensor::kSampled});
}

void StepBuilder::AddEmbedding() {
  const int64_t rows = CeilDiv(model_.vocab_size, layout_.tensor);
  const int64_t begin = std::min(rows * layout_.tensor_rank, model_.vocab_size);
  const EmbeddingShape shape{.num_tokens = num_tokens_,
                             .hidden_size = model_.hidden_size,
                             .vocab_begin = begin,
                             .vocab_rows = std::min(rows, model_.vocab_size - begin)};
  Add("embedding", OpCategory::kEmbedding, shape,
      {.in = Tensor::kTokenIds, .out = Tensor::kHidden, .weight = Weight::kEmbedding});
  AddAllReduce("all_reduce.embedding");
}

void StepBuilder::AddReceive() {
  const StageTransferShape shape{.elements = 2 * num_tokens_ * model_.hidden_size, .receive = true};
  Add("pipeline.receive", OpCategory::kCollective, shape,
      {.in2 = Tensor::kResidual, .out = Tensor::kHidden});
  has_residual_ = true;
}

void StepBuilder::AddLayer(int layer, int64_t num_layers) {
  layer_ = layer;
  num_layers_ = num_layers;
  AddRowNorm("attention.norm", Weight::kInputNorm);
  if (model_.attention.kind == AttentionKind::kGqa) {
    AddGqa();
  } else {
    AddMla();
  }
  AddAllReduce("all_reduce.attention");
  AddRowNorm("ffn.norm", Weight::kPostNorm);
  if (model_.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kDense) {
    AddDenseFfn();
  } else {
    AddMoe();
  }
  layer_ = -1;
  num_layers_ = 1;
}

void StepBuilder::AddSend() {
  const StageTransferShape shape{.elements = 2 * num_tokens_ * model_.hidden_size};
  Add("pipeline.send", OpCategory::kCollective, shape,
      {.in = Tensor::kHidden, .in2 = Tensor::kResidual});
}

void StepBuilder::AddHead() {
  AddRowNorm("final_norm", Weight::kFinalNorm);
  const int64_t rows = CeilDiv(model_.vocab_size, layout_.tensor);
  const int64_t begin = std::min(rows * layout_.tensor_rank, model_.vocab_size);
  GemmShape head{.num_tokens = logit_rows_,
                 .out_features = std::min(rows, model_.vocab_size - begin),
                 .in_features = model_.hidden_size,
                 .storage = model_.lm_head,
                 .fp32_out = true};
  if (logit_rows_ != num_tokens_) {  // A prompt: only its last token gets logits.
    head.in_stride = query_tokens_ * model_.hidden_size;
    head.in_offset = (query_tokens_ - 1) * model_.hidden_size;
  }
  AddGemm("lm_head", OpCategory::kLmHead, head, Tensor::kNormed, Tensor::kLogits,
          model_.tie_word_embeddings ? Weight::kEmbedding : Weight::kLmHead);
  const SampleShape sample{.num_tokens = logit_rows_,
                           .vocab_rows = head.out_features,
                           .vocab_begin = begin,
                           .ranks = layout_.tensor};
  Add("sampling", OpCategory::kSampling, sample, {.in = Tensor::kLogits, .out = Tensor::kSampled});
}

Op& StepBuilder::Add(absl::string_view name, OpCategory category, const OpShape& shape,
                     const OpTensors& tensors) {
  Op& op = ops_.emplace_back();
  op.name = std::string(name);
  op.category = category;
  op.layer = layer_;
  op.num_layers = num_layers_;
  op.in = tensors.in;
  op.in2 = tensors.in2;
  op.out = tensors.out;
  op.weight = tensors.weight;
  op.work = WorkOf(shape, load_);
  op.shape = shape;
  return op;
}

void StepBuilder::AddRowNorm(absl::string_view name, Weight gain) {
  const NormShape shape{.rows = num_tokens_,
                        .size = model_.hidden_size,
                        .stride = model_.hidden_size,
                        .epsilon = model_.rms_norm_epsilon,
                        .add_residual = has_residual_};
  has_residual_ = true;
  Add(name, OpCategory::kNorm, shape,
      {.in = Tensor::kHidden, .in2 = Tensor::kResidual, .out = Tensor::kNormed, .weight = gain});
}

void StepBuilder::AddPartNorm(absl::string_view name, NormShape shape, Tensor tensor, Weight gain) {
  shape.rows = num_tokens_;
  shape.epsilon = model_.rms_norm_epsilon;
  Add(name, OpCategory::kNorm, shape, {.in = tensor, .out = tensor, .weight = gain});
}

void StepBuilder::AddGemm(absl::string_view name, OpCategory category, const GemmShape& shape,
                          Tensor in, Tensor out, Weight weight) {
  Add(name, category, shape, {.in = in, .out = out, .weight = weight});
}

void StepBuilder::AddAllReduce(absl::string_view name) {
  if (layout_.tensor == 1) {
    return;
  }
  const AllReduceShape shape{.elements = num_tokens_ * model_.hidden_size,
                             .ranks = layout_.tensor,
                             .algorithm = plan_.collectives.all_reduce,
                             .payload = plan_.collectives.payload};
  Add(name, OpCategory::kCollective, shape, {.in = Tensor::kHidden, .out = Tensor::kHidden});
}

}  // namespace lastflop
