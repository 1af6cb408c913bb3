#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/weights_random.h"
#include "kernels/cuda/weights_random_cuda.h"
#include "kernels/permute/permute.h"
#include "kernels/permute/permute_cuda.h"
#include "tests/kernels/random_data.h"
#include "tests/kernels_cuda/device_case.h"

// Routings and weights of the MoE kernel tests.
namespace lastflop {

// Every format that has panels.
inline constexpr WeightFormat kPanelFormats[] = {WeightFormat::kBf16,    WeightFormat::kFp8Block,
                                                 WeightFormat::kInt4G32, WeightFormat::kInt4G128,
                                                 WeightFormat::kNvfp4,   WeightFormat::kMxfp4};

// A rank's slice of a tensor twice as tall and wide: rows and columns begin inside it.
inline CudaWeightSlice SliceCase(WeightFormat format, int64_t matrices, int64_t rows, int64_t cols,
                                 int parts) {
  CudaWeightSlice slice;
  slice.seed = 7;
  slice.stream = 3;
  slice.amplitude = std::sqrt(3.0f / static_cast<float>(2 * cols));
  slice.rows_full = 2 * rows;
  slice.cols_full = 2 * cols;
  slice.first_matrix = 2;
  slice.num_matrices = matrices;
  slice.num_parts = parts;
  for (int part = 0; part < parts; ++part) {
    slice.part_rows[part] = rows / parts;
    slice.part_row_begin[part] = 2 * part * (rows / parts) + rows / parts;
  }
  slice.col_begin = cols;
  slice.cols = cols;
  slice.format = format;
  return slice;
}

// The CPU backend's view of the same slice.
struct CpuCase {
  WeightSlice slice;
  PackedLayout layout;
};

inline CpuCase CpuOf(const CudaWeightSlice& s) {
  CpuCase out;
  std::vector<int64_t> part_rows;
  for (int part = 0; part < s.num_parts; ++part) {
    part_rows.push_back(s.part_rows[part]);
    out.slice.part_row_begin.push_back(s.part_row_begin[part]);
  }
  out.slice.seed = s.seed;
  out.slice.stream = s.stream;
  out.slice.amplitude = s.amplitude;
  out.slice.rows_full = s.rows_full;
  out.slice.cols_full = s.cols_full;
  out.slice.first_matrix = s.first_matrix;
  out.slice.col_begin = s.col_begin;
  auto layout = PackedLayout::Describe(StorageOf(s.format), s.num_matrices, part_rows, s.cols);
  EXPECT_TRUE(layout.ok());
  out.layout = *std::move(layout);
  return out;
}

// A routing on the device, permuted there.
struct RoutingCase {
  RoutingCase(const PermuteShape& permute_shape, int tile_tokens, const std::vector<int32_t>& ids)
      : shape(permute_shape),
        host_ids(ids),
        host_weights(RandomWeights(ids.size())),
        expert_ids(ids),
        weights(host_weights),
        memory(PairsBytes(shape, tile_tokens)),
        pairs(PlacePairs(shape, tile_tokens, memory.get())) {
    LASTFLOP_EXPECT_OK(LaunchPermute(shape, expert_ids.get(), weights.get(), pairs, nullptr));
  }
  static std::vector<float> RandomWeights(size_t count) {
    std::mt19937_64 generator(11);
    std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
    std::vector<float> values(count);
    for (float& value : values) {
      value = uniform(generator);
    }
    return values;
  }
  int32_t NumPairs() const {
    int32_t count = 0;
    LASTFLOP_EXPECT_CUDA_OK(
        cudaMemcpy(&count, pairs.num_pairs(), sizeof(count), cudaMemcpyDeviceToHost));
    return count;
  }
  template <typename T>
  std::vector<T> Read(const T* from, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    LASTFLOP_EXPECT_CUDA_OK(cudaDeviceSynchronize());
    LASTFLOP_EXPECT_CUDA_OK(
        cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

  PermuteShape shape;
  std::vector<int32_t> host_ids;
  std::vector<float> host_weights;
  DeviceArray<int32_t> expert_ids;
  DeviceArray<float> weights;
  DeviceArray<unsigned char> memory;
  CudaPairs pairs;
};

inline PermuteShape PermuteCase(int64_t tokens, int64_t top_k, int64_t experts, int64_t first,
                                int64_t local) {
  return {.num_tokens = tokens,
          .top_k = top_k,
          .num_experts = experts,
          .first_expert = first,
          .num_local_experts = local};
}

}  // namespace lastflop
