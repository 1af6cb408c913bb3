#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"
#include "tests/kernels/random_data.h"

// One set of experts with weights, a routing and the pairs it gives: what the tests of the routed
// expert kernels run on.
namespace lastflop {

struct MoeSizes {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  int64_t first_expert = 0;
  int64_t num_local_experts = 0;
  int64_t hidden_size = 0;
  int64_t intermediate = 0;
};

// Builds and threads that a test runs a kernel with.
struct PoolCase {
  VectorIsa isa = VectorIsa::kPortable;
  int num_threads = 1;
};
inline std::vector<PoolCase> AllPools() {
  std::vector<PoolCase> cases = {{VectorIsa::kPortable, 1}, {VectorIsa::kPortable, 3}};
  if (DetectVectorIsa() == VectorIsa::kAvx2) {
    cases.push_back({VectorIsa::kAvx2, 1});
    cases.push_back({VectorIsa::kAvx2, 2});
  }
  return cases;
}
inline std::unique_ptr<ThreadPool> MakePool(const PoolCase& pool) {
  return ThreadPool::Create({.cores = std::vector<int>(static_cast<size_t>(pool.num_threads), -1),
                             .shared_cores = pool.num_threads > 2,
                             .isa = pool.isa})
      .value();
}

inline WeightStorage Storage(WeightFormat format) {
  return {.format = format,
          .group_size = format == WeightFormat::kInt4G32    ? 32
                        : format == WeightFormat::kInt4G128 ? 128
                                                            : 0};
}

// Packed random matrices.
struct Matrices {
  PackedLayout layout;
  AlignedBuffer data;
  PackedWeights view() const { return {.layout = &layout, .data = data.data()}; }
  // The stored weights: what references multiply with.
  auto rows() const {
    return [this](int64_t matrix, int64_t row, std::span<float> out) {
      UnpackRow(view(), matrix, row, out);
    };
  }
};

// `integers`: weights in -7..7 with a 7 in each group, so that int4 scales are exactly 1.
inline Matrices RandomMatrices(WeightFormat format, int64_t count, std::vector<int64_t> part_rows,
                               int64_t cols, bool integers, uint64_t seed) {
  Matrices matrices;
  matrices.layout =
      PackedLayout::Create(Storage(format), count, std::move(part_rows), cols).value();
  matrices.data = AlignedBuffer::Create(matrices.layout.bytes()).value();
  const auto size = static_cast<size_t>(matrices.layout.rows * cols);
  for (int64_t matrix = 0; matrix < count; ++matrix) {
    const uint64_t matrix_seed = seed * 1000 + static_cast<uint64_t>(matrix);
    std::vector<float> values = ToFloats(integers ? RandomIntegers(size, -7, 7, matrix_seed)
                                                  : RandomBf16(size, matrix_seed));
    for (size_t i = 0; integers && i < size; i += 8) {
      values[i] = 7;
    }
    PackMatrix(matrices.layout, matrix, values, matrices.data.data());
  }
  return matrices;
}

struct MoeCase {
  MoeSizes sizes;
  Matrices gate_up;
  Matrices down;
  std::vector<Bf16> in;
  std::vector<int32_t> expert_ids;
  std::vector<float> weights;  // Powers of two for integers, else uniform.
  std::optional<PairBuffer> pair_buffer;
  PairList pairs;

  PermuteShape permute_shape() const {
    return {.num_tokens = sizes.num_tokens,
            .top_k = sizes.top_k,
            .num_experts = sizes.num_experts,
            .first_expert = sizes.first_expert,
            .num_local_experts = sizes.num_local_experts};
  }

  // Routes by `ids` ([num_tokens, top_k]).
  void Route(std::vector<int32_t> ids) {
    expert_ids = std::move(ids);
    pair_buffer.emplace(permute_shape());
    pairs = pair_buffer->list();
    Permute(permute_shape(), expert_ids, weights, pairs);
  }
};

inline std::unique_ptr<MoeCase> MakeMoeCase(const MoeSizes& sizes, WeightFormat format,
                                            bool integers, uint64_t seed) {
  auto moe = std::make_unique<MoeCase>();
  moe->sizes = sizes;
  moe->gate_up =
      RandomMatrices(format, sizes.num_local_experts, {sizes.intermediate, sizes.intermediate},
                     sizes.hidden_size, integers, seed + 1);
  moe->down = RandomMatrices(format, sizes.num_local_experts, {sizes.hidden_size},
                             sizes.intermediate, integers, seed + 2);
  const auto in_size = static_cast<size_t>(sizes.num_tokens * sizes.hidden_size);
  moe->in = integers ? RandomIntegers(in_size, -1, 1, seed + 3) : RandomBf16(in_size, seed + 3);
  const auto num_slots = static_cast<size_t>(sizes.num_tokens * sizes.top_k);
  std::mt19937_64 generator(seed + 4);
  std::uniform_real_distribution<float> uniform(0.05f, 1.0f);
  for (size_t i = 0; i < num_slots; ++i) {
    moe->weights.push_back(integers ? (i % 2 == 0 ? 1.0f : 2.0f) : uniform(generator));
  }
  moe->Route(RandomExperts(sizes.num_tokens, sizes.top_k, sizes.num_experts, seed + 5));
  return moe;
}

// Values that no kernel may leave or read: every bit set is a NaN in bf16 and fp32.
inline std::vector<Bf16> PoisonedBf16(size_t count) {
  return std::vector<Bf16>(count, Bf16{0xFFFF});
}

// Poisoned, 64-byte aligned.
inline AlignedBuffer PoisonedWorkspace(int64_t bytes) {
  AlignedBuffer buffer = AlignedBuffer::Create(static_cast<size_t>(bytes)).value();
  std::fill_n(buffer.data(), buffer.bytes(), std::byte{0xFF});
  return buffer;
}

}  // namespace lastflop
