#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "step/op.h"

namespace lastflop {

// Appends the ops of one rank's step in order. Internal to step/; MakeStep drives it. The plan has
// passed CheckFeasible and CheckPoint.
class StepBuilder {
 public:
  // The references outlive the builder.
  StepBuilder(const Model& model, const Plan& plan, const Point& point, const Layout& layout,
              const ExpertLoad& load);

  // What the first stage of a pipeline begins a decode pass with: the micro-batch's tokens of the
  // step before. They only let the pass begin: its inputs are the draw's.
  void AddReceiveTokens();
  void AddEmbedding();
  void AddReceive();
  // Norm, attention and its all-reduce; norm, FFN and its all-reduce. The ops are of `num_layers`
  // layers.
  void AddLayer(int layer, int64_t num_layers);
  void AddSend();
  // Final norm, LM head and sampling.
  void AddHead();
  // The way of sampled tokens back to the first stage.
  void AddSendTokens();

  int64_t num_tokens() const { return num_tokens_; }
  std::vector<Op> TakeOps() { return std::move(ops_); }

 private:
  struct OpTensors {
    Tensor in = Tensor::kNone;
    Tensor in2 = Tensor::kNone;
    Tensor out = Tensor::kNone;
    Weight weight = Weight::kNone;
  };
  Op& Add(absl::string_view name, OpCategory category, const OpShape& shape,
          const OpTensors& tensors);

  void AddRowNorm(absl::string_view name, Weight gain);
  void AddPartNorm(absl::string_view name, NormShape shape, Tensor tensor, Weight gain);
  void AddGemm(absl::string_view name, OpCategory category, const GemmShape& shape, Tensor in,
               Tensor out, Weight weight);
  void AddAllReduce(absl::string_view name);

  // step/build_attention.cc
  void AddGqa();
  void AddMla();
  void AddMlaQuery();
  void AddAttend(int64_t num_heads, int64_t num_kv_heads);

  // step/build_ffn.cc
  void AddDenseFfn();
  void AddSharedExperts();
  void AddRouter();
  void AddDispatch();
  void AddSeparateDequant();
  void AddGroupedExperts();
  void AddPaddedExperts();
  void AddFusedExperts();
  void AddPermutedExperts();
  void AddMoe();

  const Model& model_;
  const Plan& plan_;
  const Layout& layout_;
  const ExpertLoad load_;
  int64_t num_sequences_ = 0;  // Of one pass.
  int64_t query_tokens_ = 1;
  int64_t context_ = 0;
  int64_t num_tokens_ = 0;
  int64_t logit_rows_ = 0;     // Tokens whose logits are wanted.
  int64_t expert_tokens_ = 0;  // Token rows that experts may see: received ones under all-to-all.
  int layer_ = -1;
  int64_t num_layers_ = 1;
  bool has_residual_ = false;
  std::vector<Op> ops_;
};

}  // namespace lastflop
