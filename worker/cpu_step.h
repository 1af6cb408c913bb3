#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/cpu_collectives.h"
#include "collectives/gang.h"
#include "collectives/stage_link.h"
#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/permute/permute.h"
#include "kernels/rope/rope.h"
#include "step/layout.h"
#include "step/op.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cpu_kv_cache.h"
#include "worker/cpu_weights.h"
#include "worker/plugin_host.h"

namespace lastflop {

// What follows an output that a plugin writes, and its workspace, for the check to find what was
// written past the end: bytes of 0xFF.
inline constexpr size_t kPluginGuardBytes = 4096;

// Experts of one MoE layer's tokens: [num_tokens, top_k] each.
struct CpuRouting {
  std::vector<int32_t> expert_ids;
  std::vector<float> weights;
};

// Bytes behind the values of a tensor: of what a plugin writes.
size_t GuardBytes(const Plan& plan, Tensor tensor);

// What one op of a step needs beside the activations.
struct CpuOp {
  const Op* op = nullptr;  // Of CpuStep::step.
  int moe_index = -1;      // Which of the kept MoE layers; -1 elsewhere.
  std::optional<CpuWeights> weights;
  std::optional<CpuWeights> down_weights;  // Of a fused MoE op.
  std::optional<CpuWeights> bias;
  std::optional<CpuKvCache> cache;  // Rope and attention of a layer share it.
  std::vector<CpuKvCache> caches;   // By micro-batch, where there are several; `cache` is one.
  // Separate dequantization: the bf16 copies that a dequant op writes and an expert op reads.
  std::optional<PackedLayout> dequantized;
  CpuBufferStore::Shared dequantized_data;
  std::optional<PackedLayout> down_dequantized;
  CpuBufferStore::Shared down_dequantized_data;

  // Of a plugin op: the plugin, which all layers share, and the weights that it reads: as
  // lastflop_moe_weights, or in the plugin's own layout (prepared).
  std::shared_ptr<PluginMoe> plugin;
  lastflop_moe_weights plugin_weights{};
  CpuBufferStore::Shared plain;
  CpuBufferStore::Shared down_plain;
  CpuBufferStore::Shared prepared;

  PackedWeights expert_weights() const;
  PackedWeights expert_down_weights() const;

  // The weights [in_features] of one output feature of an expert, as the op reads them: from their
  // copies in memory, or where a mirror has none from the true values.
  void ExpertRow(int64_t matrix, int64_t row, std::span<float> out) const;
  void ExpertDownRow(int64_t matrix, int64_t row, std::span<float> out) const;

  // Of a mirror (CpuStep::run_op): brings the sequences' cache here before a reference reads it.
  std::function<absl::Status(std::span<const int64_t> sequences)> fetch_cache;
  // Of a mirror: a row of the copies that a dequant op made.
  std::function<absl::Status(int64_t matrix, int64_t row, std::span<float> out)> read_copy;
};

// What differs from one micro-batch of a pipeline to another; CpuStep has that of the current one.
struct CpuMicroBatch {
  std::vector<int32_t> token_ids;
  std::vector<std::vector<float>> drawn_scores;
  std::vector<CpuRouting> routing;
  std::vector<int32_t> sampled;
  AlignedBuffer output;
};

// A rank's step made ready: the ops of MakeStep with their weights, caches and buffers. RunCpuOp
// (worker/cpu_run_op.h) runs one op, CheckCpuOp (worker/cpu_check_op.h) runs and checks it.
struct CpuStep {
  Model model;
  Plan plan;  // All of it honoured; `auto` still in it.
  Point point;
  Layout layout;
  Step step;
  std::vector<CpuOp> ops;
  ThreadPool* pool = nullptr;  // Outlives this.
  // Set where this step mirrors one of another device, for its checks: runs the op there, on inputs
  // and poisoned outputs as they are here, and brings the results here. Such a step has no weights
  // in memory, only what tells their true values.
  std::function<absl::Status(CpuOp& op)> run_op;

  // Activations by Tensor, but for kRouting and kPairs.
  std::map<Tensor, AlignedBuffer> tensors;
  AlignedBuffer workspace;  // For the kernel that runs, 64-byte aligned.
  std::optional<RopeTable> rope;
  std::optional<PairBuffer> pairs;

  // Inputs of the current draw.
  std::vector<int32_t> token_ids;                // [num_tokens]
  std::vector<std::vector<float>> drawn_scores;  // By moe_index: [num_tokens, num_experts].
  std::vector<float> router_bias;                // Zeros: drawn scores are what is to be chosen by.
  std::vector<CpuRouting> routing;               // By moe_index, of the step's last run.
  std::vector<int32_t> sampled;                  // [tokens with logits]

  // Data attention: what the latest dispatch received.
  std::vector<int32_t> received_ids;
  std::vector<float> received_weights;
  int64_t num_received = 0;

  // Ranks that sum, and ranks that exchange tokens; null where the plan has none.
  std::unique_ptr<CpuCommunicator> tensor_ranks;
  std::unique_ptr<CpuCommunicator> expert_ranks;

  // Stages of a pipeline; null elsewhere. What a hand-over is checked by goes by a way of its own.
  std::unique_ptr<StageLink> stage_link;
  std::unique_ptr<StageLink> stage_witness;
  // Several micro-batches: what is put away of those that are not current.
  std::vector<CpuMicroBatch> micro_batches;
  int64_t micro_batch = 0;  // The current one.

  double wait_us = 0;        // Grows by what ops spend waiting for other ranks.
  double stage_wait_us = 0;  // Of it, for other stages.

  // Makes a micro-batch current: the ops work on its tokens and caches.
  void SelectMicroBatch(int64_t index);

  bool is_idle() const { return ops.empty(); }
  int64_t num_sequences() const;
  int64_t first_sequence() const;

  // The first `count` values of a tensor.
  template <typename T>
  std::span<T> As(Tensor tensor, int64_t count) {
    return tensors.at(tensor).As<T>(static_cast<size_t>(count));
  }
  // Tokens that the experts of this rank see: received ones under data attention.
  int64_t expert_tokens() const { return layout.data_attention ? num_received : step.num_tokens; }
  // The permutation, for as many tokens as there are.
  PairList pair_list();
  std::span<std::byte> work() { return {workspace.data(), workspace.bytes()}; }
};

// What a step is made from.
struct CpuStepInputs {
  const Model& model;
  const Plan& plan;
  const Point& point;
  int rank = 0;
  int64_t layers_kept = 0;
  bool experts_only = false;
  WeightData data;
  PluginHost* plugins = nullptr;  // Null: none are offered.
};

// Makes the ops of inputs.rank with weights and buffers; a rank that the plan does not use gets an
// idle step. The plan has passed CheckCpuSupport. InvalidArgument as MakeStep; ResourceExhausted.
absl::StatusOr<std::unique_ptr<CpuStep>> LoadCpuStep(const CpuStepInputs& inputs,
                                                     CpuBufferStore& store, ThreadPool& pool);

// Allocates what the ops of step.step write: activations, routing and pairs.
absl::Status AllocateCpuActivations(CpuStep& step);

// Where MoE layers are counted from 0: of each op, -1 outside of them.
std::vector<int> MoeIndices(const Model& model, const Step& step);

// What a hand-over sends or receives, as 16-bit words: hidden state and residual, or token ids.
struct StageMessage {
  std::span<uint16_t> first;
  std::span<uint16_t> second;
};
StageMessage MessageOf(CpuStep& step, const Op& op, const StageTransferShape& shape);

// Meets the ranks of the step's collectives; of experts alone, which have none, nobody. A
// collective call: every rank of the gang makes it at the same time, idle ranks too.
absl::Status ConnectCpuStep(Gang& gang, CpuStep& step);

// Bytes of weights and cache that one run of the step reads from memory when experts are touched as
// `unique_experts` says (of this rank, a layer).
double ColdBytesOf(const CpuStep& step, double unique_experts);

}  // namespace lastflop
