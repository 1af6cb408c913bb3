#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/gang.h"
#include "gtest/gtest.h"
#include "worker/cpu_backend.h"

namespace lastflop {

// A small model on which every plan variant runs in milliseconds: 8 experts top-2, three layers.
inline Model TinyModel(AttentionKind kind) {
  Model model;
  model.name = "tiny";
  model.hidden_size = 64;
  model.num_layers = 3;
  model.layer_kinds = {LayerKind::kMoe, LayerKind::kMoe, LayerKind::kMoe};
  model.num_experts = 8;
  model.top_k = 2;
  model.moe_intermediate_size = 64;
  model.vocab_size = 251;  // Not divisible by ranks.
  model.attention.num_heads = 4;
  model.attention.num_kv_heads = 1;  // Fewer than ranks.
  model.attention.head_dim = 16;
  model.attention.rotary_dim = 16;
  model.attention.qk_norm = true;
  model.router.renormalize = true;
  model.experts = StorageOf(WeightFormat::kInt4G32);
  if (kind == AttentionKind::kMla) {
    model.attention.kind = AttentionKind::kMla;
    model.attention.num_kv_heads = 4;
    model.attention.head_dim = 0;
    model.attention.qk_norm = false;
    model.attention.q_lora_rank = 32;
    model.attention.kv_lora_rank = 32;
    model.attention.qk_nope_head_dim = 16;
    model.attention.qk_rope_head_dim = 8;
    model.attention.rotary_dim = 8;
    model.attention.v_head_dim = 16;
    model.router.scoring = RouterScoring::kSigmoid;
    model.router.has_bias = true;
    model.router.num_groups = 4;
    model.router.top_k_groups = 2;
    model.layer_kinds[0] = LayerKind::kDense;
    model.dense_intermediate_size = 96;
    model.num_shared_experts = 1;
    model.shared_intermediate_size = 64;
  }
  return model;
}

// Widths that the panels of the CUDA kernels divide.
inline Model SmallModel(AttentionKind kind) {
  Model model = TinyModel(kind);
  model.hidden_size = 256;
  model.moe_intermediate_size = 128;
  return model;
}

inline BackendOptions TinyOptions(const Model& model) {
  BackendOptions options;
  options.model = model;
  options.data_seed = 11;
  options.machine.l2_bytes = 1 << 20;  // Evicting a real cache takes longer than the step.
  return options;
}

inline Point TinyPoint(int64_t batch = 6) {
  Point point;
  point.batch = batch;
  point.context = 20;
  point.routing.distribution = Distribution::kZipf;
  return point;
}

// Runs fn(backend, gang) on `num_ranks` ranks, each a thread of its own with its own backend.
inline void OnRanks(const BackendOptions& options, int num_ranks,
                    const std::function<void(CpuBackend& backend, Gang& gang)>& fn) {
  static std::atomic<int> num_gangs = 0;
  const std::string rendezvous = ::testing::TempDir() + "lastflop-" + std::to_string(getpid()) +
                                 "-" + std::to_string(num_gangs++);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      BackendOptions of_rank = options;
      of_rank.rank = rank;
      of_rank.num_ranks = num_ranks;
      auto gang = JoinGang(rendezvous, rank, num_ranks, std::chrono::seconds(20));
      ASSERT_TRUE(gang.ok()) << gang.status();
      auto backend = CpuBackend::Create(of_rank);
      ASSERT_TRUE(backend.ok()) << backend.status();
      fn(**backend, **gang);
      // Ranks leave together, as in the sampling loop: one that ends breaks the gang of the others.
      EXPECT_TRUE((*gang)->Barrier().ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace lastflop
