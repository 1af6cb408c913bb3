#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/cuda/cuda_peer_communicator.h"
#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"
#include "gpu/cublas_lt.h"
#include "gpu/device_buffer.h"
#include "gpu/nccl.h"
#include "gpu/stream.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/permute/permute_cuda.h"
#include "plugin/lastflop_plugin.h"
#include "step/layout.h"
#include "step/op.h"
#include "worker/buffer_store.h"
#include "worker/cuda_dense_pairs.h"
#include "worker/plugin_host.h"
#include "worker/weight_place.h"

namespace lastflop {

using CudaBufferStore = BufferStore<DeviceBuffer>;

// What all arms of a child share on its device.
struct CudaContext {
  Stream stream;
  std::unique_ptr<CublasLt> cublas_lt;
  std::unique_ptr<Nccl> nccl;  // Of all ranks of the gang; null for one.
  std::map<std::string, std::unique_ptr<Nccl>> tuned_nccl;  // By collectives.nccl, as text.
  // Of all ranks of the gang; null for one, and where `peers_status` says why not.
  std::unique_ptr<CudaPeerCommunicator> peers;
  absl::Status peers_status;
  int num_sms = 0;
};

// A part of the L2 that is kept for one range of an op's weights (moe.l2_pin).
struct PinnedRange {
  const void* begin = nullptr;
  size_t bytes = 0;     // 0: none.
  float hit_ratio = 1;  // Of its lines, the share that is kept.
};

// What one op of a step needs beside the activations.
struct CudaOp {
  const Op* op = nullptr;  // Of CudaStep::step.
  int moe_index = -1;      // Which of the kept MoE layers; -1 elsewhere.
  CudaBufferStore::Shared weights;
  CudaBufferStore::Shared down_weights;  // Of a fused MoE op.
  CudaBufferStore::Shared bias;
  CudaBufferStore::Shared cache;  // Rope and attention of a layer share it.
  size_t cache_key_bytes = 0;
  CudaBufferStore::Shared copies;  // Separate dequantization: written, then read as weights.
  CudaBufferStore::Shared down_copies;
  DenseGemm gemm;                          // Of bf16 GEMMs, head GEMMs and padded experts.
  const CudaPairs* dense_pairs = nullptr;  // Of an fp8 GEMM: all its tokens.
  float tensor_scale = 1;                  // Of nvfp4 weights.
  PinnedRange pinned;
  PinnedRange down_pinned;
  bool reduces_first = false;  // A norm that does the all-reduce before it as well.

  // Of a plugin op: the plugin, which all layers share, and what it reads: `weights` and
  // `down_weights` as checkpoints store them, or its own layout of both (prepared).
  std::shared_ptr<PluginMoe> plugin;
  lastflop_moe_weights plugin_weights{};
  CudaBufferStore::Shared prepared;

  DeviceKvCache kv() const;
  // Of expert ops: the panels that they read.
  const std::byte* expert_panels() const { return (copies ? copies : weights)->data(); }
  const std::byte* expert_down_panels() const {
    return (down_copies ? down_copies : down_weights)->data();
  }
};

// Where a routing lies: of one MoE layer, or what was received of it.
struct CudaRouting {
  int32_t* expert_ids = nullptr;  // [tokens, top_k]
  float* weights = nullptr;       // [tokens, top_k]
};

// A rank's step made ready on its device: the ops of MakeStep with their weights, caches and
// buffers. RunCudaOp (worker/cuda_run_op.h) enqueues one op.
struct CudaStep {
  Model model;
  Plan plan;  // All of it honoured; `auto` still in it.
  Point point;
  Layout layout;
  bool shard = false;  // One rank stands for all: collectives are not run.
  // What plan.collectives.all_reduce runs as, and the communicator where that is nccl; under data
  // attention, which has none, unused.
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::kNccl;
  Nccl* nccl = nullptr;  // Outlives this.
  Step step;
  std::vector<CudaOp> ops;

  // What arms of equal shapes use one after the other is the same memory, so that where it lies is
  // no difference between them: activations (but for kRouting and kPairs), workspace, pairs.
  std::map<Tensor, CudaBufferStore::Shared> tensors;
  CudaBufferStore::Shared workspace;  // For the kernel that runs: any content.
  std::shared_ptr<PluginMoe> plugin;  // Of moe.kernel=plugin:NAME, else null.
  DeviceBuffer fused_workspace;       // Of fused MoE: zero when it is made.
  DeviceBuffer rope_table;
  CudaBufferStore::Shared pairs_memory;
  CudaPairs pairs;
  std::map<int64_t, CudaDensePairs> dense_pairs;  // By number of tokens.
  DeviceBuffer routing_memory;
  std::vector<CudaRouting> routing;  // By moe_index.
  DeviceBuffer router_scores;  // [MoE layers, num_expert_tokens(), num_experts] fp32 of the draw.
  DeviceBuffer router_bias;    // Zeros: drawn scores are what is to be chosen by.
  DeviceBuffer candidates;     // Of sampling over ranks: own, then all.
  // Data attention: whose tokens are exchanged, what the latest dispatch received, and what the
  // draw gives all tokens, by moe_index (a shard, which exchanges nothing, works by that).
  TokenSplit tokens;
  DeviceBuffer received_memory;
  CudaRouting received;
  DeviceBuffer all_routing_memory;
  std::vector<CudaRouting> all_routing;

  bool is_idle() const { return ops.empty(); }
  int num_moe_layers() const { return static_cast<int>(routing.size()); }
  int64_t num_sequences() const;
  int64_t first_sequence() const;
  template <typename T>
  T* At(Tensor tensor) const {
    return tensors.at(tensor)->As<T>();
  }
  // Tokens that have a place in the experts' tensors: under data attention those of all ranks.
  int64_t num_expert_tokens() const;
  // Of these, the one that this rank's own begin with.
  int64_t first_own_token() const;
  // The routing that the layer's experts work by: under data attention the received one.
  const CudaRouting& expert_routing(int moe_index) const;
  const float* all_scores_of(int moe_index) const {
    return router_scores.As<float>() + moe_index * num_expert_tokens() * model.num_experts;
  }
  const float* scores_of(int moe_index) const {
    return all_scores_of(moe_index) + first_own_token() * model.num_experts;
  }
};

// Rows of an expert product's input, the most there can be.
inline int64_t RowsIn(const ExpertGemmShape& shape) {
  return shape.gather_tokens ? shape.num_tokens : shape.num_tokens * shape.top_k;
}

// What a step is made from.
struct CudaStepInputs {
  const Model& model;
  const Plan& plan;
  const Point& point;
  int rank = 0;
  bool shard = false;
  int64_t layers_kept = 0;
  bool experts_only = false;
  WeightData data;
  // Of moe.kernel=plugin:NAME.
  PluginHost* plugins = nullptr;  // Null: none are offered.
  int device_index = 0;           // The current one.
  int compute_capability = 0;     // 90 for sm_90.
};

// Makes the ops of inputs.rank with weights and buffers; a rank that the plan does not use gets an
// idle step. The plan has passed CheckCudaSupport. Waits for the device. InvalidArgument as
// MakeStep; Unimplemented for a shape that a kernel does not take; ResourceExhausted.
absl::StatusOr<std::unique_ptr<CudaStep>> LoadCudaStep(const CudaStepInputs& inputs,
                                                       CudaBufferStore& store,
                                                       CudaContext& context);

}  // namespace lastflop
