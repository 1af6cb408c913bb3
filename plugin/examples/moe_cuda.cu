// An example of a lastflop plugin for GPUs: the experts of a layer in every format that plugins are
// given, in plain CUDA: two kernels, and no tensor cores. docs/plugins.md says how it is built and
// run. It needs lastflop_plugin.h and the CUDA toolkit, and nothing else.
//
// A warp computes one output feature of one token, so that a token reads its experts' weights
// alone: right for a few tokens, and slow for many.

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <lastflop_plugin.h>

#include <cstdint>
#include <cstdio>

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kMostBlocks = 65535;  // Of grid.y; the kernels stride over the rest.

// A weight [num_local_experts, rows, cols] as lastflop hands it over.
struct Matrix {
  const void* weights;
  const void* scales;
  float tensor_scale;
  int32_t format;
  int64_t rows;
  int64_t cols;
  int64_t group_size;
  int64_t block_rows;
};

__device__ float FromE2m1(int code) {
  const int magnitude = code & 7;
  const float value = magnitude < 4    ? 0.5f * static_cast<float>(magnitude)
                      : magnitude == 4 ? 2.0f
                      : magnitude == 5 ? 3.0f
                      : magnitude == 6 ? 4.0f
                                       : 6.0f;
  return (code & 8) != 0 ? -value : value;
}

__device__ float FromE4m3(uint8_t bits) {
  __nv_fp8_e4m3 value;
  value.__x = bits;
  return static_cast<float>(value);
}

// The weight of a row (expert * rows + row) and a column, as the header draws the formats.
__device__ float WeightAt(const Matrix& m, int64_t row, int64_t col) {
  const int64_t at = row * m.cols + col;
  if (m.format == LASTFLOP_WEIGHTS_BF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(m.weights)[at]);
  }
  const auto* const bytes = static_cast<const uint8_t*>(m.weights);
  if (m.format == LASTFLOP_WEIGHTS_FP8_BLOCK) {
    const int64_t blocks = (m.rows + m.block_rows - 1) / m.block_rows;
    const int64_t block = row / m.rows * blocks + row % m.rows / m.block_rows;
    const int64_t scales_of_row = (m.cols + m.group_size - 1) / m.group_size;
    return FromE4m3(bytes[at]) *
           static_cast<const float*>(m.scales)[block * scales_of_row + col / m.group_size];
  }
  const int code = bytes[at / 2] >> (at % 2 * 4) & 15;
  const int64_t group = at / m.group_size;
  switch (m.format) {
    case LASTFLOP_WEIGHTS_INT4:
      return static_cast<float>(code - 8) *
             __bfloat162float(static_cast<const __nv_bfloat16*>(m.scales)[group]);
    case LASTFLOP_WEIGHTS_NVFP4:
      return FromE2m1(code) * FromE4m3(static_cast<const uint8_t*>(m.scales)[group]) *
             m.tensor_scale;
    default:
      return FromE2m1(code) *
             exp2f(static_cast<float>(static_cast<const uint8_t*>(m.scales)[group] - 127));
  }
}

__device__ float SumOfWarp(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  }
  return value;
}

// The row of a weight times a vector, by all lanes of a warp.
template <typename Value>
__device__ float Dot(const Matrix& m, int64_t row, const Value* vector, int lane) {
  float sum = 0;
  for (int64_t col = lane; col < m.cols; col += 32) {
    sum += WeightAt(m, row, col) * static_cast<float>(vector[col]);
  }
  return SumOfWarp(sum);
}

// act[slot, f] of every slot (a token and one of its choices) with an expert of this rank.
__global__ void GateUpKernel(const lastflop_moe_problem p, const Matrix gate_up, int64_t num_slots,
                             const __nv_bfloat16* in, const int32_t* expert_ids, float* act) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t f = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  for (int64_t slot = blockIdx.y; slot < num_slots; slot += gridDim.y) {
    const int64_t expert = expert_ids[slot] - p.first_expert;
    if (f >= p.intermediate_size || expert < 0 || expert >= p.num_local_experts) {
      continue;
    }
    const __nv_bfloat16* const token = in + slot / p.top_k * p.hidden_size;
    const int64_t row = expert * gate_up.rows + f;
    const float gate = Dot(gate_up, row, token, lane);
    const float up = Dot(gate_up, row + p.intermediate_size, token, lane);
    if (lane == 0) {
      act[slot * p.intermediate_size + f] = gate / (1 + expf(-gate)) * up;
    }
  }
}

// out[t, h], all of it: a token without an expert of this rank gets zeros, or `shared`.
__global__ void DownKernel(const lastflop_moe_problem p, const Matrix down, int64_t num_tokens,
                           const float* act, const int32_t* expert_ids, const float* expert_weights,
                           const __nv_bfloat16* shared, __nv_bfloat16* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t h = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  for (int64_t t = blockIdx.y; t < num_tokens; t += gridDim.y) {
    if (h >= p.hidden_size) {
      continue;
    }
    const int64_t at = t * p.hidden_size + h;
    float sum = shared != nullptr ? __bfloat162float(shared[at]) : 0;
    for (int64_t slot = t * p.top_k; slot < (t + 1) * p.top_k; ++slot) {
      const int64_t expert = expert_ids[slot] - p.first_expert;
      if (expert >= 0 && expert < p.num_local_experts) {
        sum += expert_weights[slot] *
               Dot(down, expert * down.rows + h, act + slot * p.intermediate_size, lane);
      }
    }
    if (lane == 0) {
      out[at] = __float2bfloat16_rn(sum);
    }
  }
}

int32_t Query(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* reason,
              size_t reason_bytes) {
  if (problem->device != LASTFLOP_DEVICE_CUDA) {
    std::snprintf(reason, reason_bytes, "moe_cuda runs on GPUs");
    return 1;
  }
  needs->workspace_bytes = problem->max_tokens * problem->top_k * problem->intermediate_size *
                           static_cast<int64_t>(sizeof(float));
  needs->capturable = 1;
  return 0;
}

int32_t Create(const lastflop_moe_problem* problem, void** state, char* /*reason*/,
               size_t /*reason_bytes*/) {
  *state = new lastflop_moe_problem(*problem);
  return 0;
}

void Destroy(void* state) { delete static_cast<lastflop_moe_problem*>(state); }

dim3 GridOf(int64_t features, int64_t rows) {
  return dim3(static_cast<unsigned int>((features + kWarps - 1) / kWarps),
              static_cast<unsigned int>(rows < kMostBlocks ? rows : kMostBlocks));
}

int32_t RunLayer(void* state, const lastflop_host* /*host*/, const lastflop_moe_call* call,
                 char* reason, size_t reason_bytes) {
  const lastflop_moe_problem& p = *static_cast<const lastflop_moe_problem*>(state);
  const lastflop_moe_weights& w = *call->weights;
  const Matrix gate_up{w.gate_up,
                       w.gate_up_scales,
                       w.gate_up_tensor_scale,
                       p.weight_format,
                       2 * p.intermediate_size,
                       p.hidden_size,
                       p.group_size,
                       p.block_rows};
  const Matrix down{w.down,        w.down_scales,       w.down_tensor_scale, p.weight_format,
                    p.hidden_size, p.intermediate_size, p.group_size,        p.block_rows};
  auto* const act = static_cast<float*>(call->workspace);
  auto* const stream = static_cast<cudaStream_t>(call->stream);
  const int64_t num_slots = call->num_tokens * p.top_k;
  GateUpKernel<<<GridOf(p.intermediate_size, num_slots), kThreads, 0, stream>>>(
      p, gate_up, num_slots, static_cast<const __nv_bfloat16*>(call->in), call->expert_ids, act);
  DownKernel<<<GridOf(p.hidden_size, call->num_tokens), kThreads, 0, stream>>>(
      p, down, call->num_tokens, act, call->expert_ids, call->expert_weights,
      static_cast<const __nv_bfloat16*>(call->shared), static_cast<__nv_bfloat16*>(call->out));
  // A launch that CUDA refuses is told by its caller alone.
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    std::snprintf(reason, reason_bytes, "launching: %s", cudaGetErrorString(error));
    return 1;
  }
  return 0;
}

const lastflop_plugin kPlugin = {
    LASTFLOP_PLUGIN_ABI_VERSION, "moe_cuda 1.0", &Query, &Create, &Destroy,
    /*prepare=*/nullptr,         &RunLayer};

}  // namespace

const lastflop_plugin* lastflop_plugin_entry(void) { return &kPlugin; }
