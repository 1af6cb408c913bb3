// Times the fused MoE kernel cold on one GPU: a graph of layer calls that rotates over several
// layers' weights, fresh routing for every call, outputs checked against plain fp32 kernels.
//
// usage: moe_gpu_bench HIDDEN INTERMEDIATE(rank) EXPERTS(local) EXPERTS(model) TOP_K BATCHES SEED
// Prints one JSON object a batch and configuration on stdout.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/fused_moe/fused_moe_launch.h"

namespace lastflop {
namespace {

#define CHECK_CUDA(call)                                                 \
  do {                                                                   \
    const cudaError_t check_error = (call);                              \
    if (check_error != cudaSuccess) {                                    \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(check_error));                     \
      std::exit(5);                                                      \
    }                                                                    \
  } while (false)

__global__ void FillInputs(__nv_bfloat16* out, int64_t count, uint64_t seed) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    out[i] =
        __float2bfloat16_rn((CounterUniform(seed, 99, static_cast<uint64_t>(i)) - 0.5f) * 3.4641f);
  }
}

// One warp a (pair, feature): act in fp32, rounded to bf16 as the kernel rounds it.
__global__ void ReferenceAct(const float* gate_up, const __nv_bfloat16* in, const int32_t* ids,
                             int first_expert, int num_local, int num_pairs, int top_k, int hidden,
                             int intermediate, float* act) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (warp >= static_cast<int64_t>(num_pairs) * intermediate) {
    return;
  }
  const int pair = static_cast<int>(warp / intermediate);
  const int feature = static_cast<int>(warp % intermediate);
  const int expert = ids[pair] - first_expert;
  if (expert < 0 || expert >= num_local) {
    return;
  }
  const float* gate =
      gate_up + (static_cast<int64_t>(expert) * 2 * intermediate + feature) * hidden;
  const float* up = gate + static_cast<int64_t>(intermediate) * hidden;
  const __nv_bfloat16* x = in + static_cast<int64_t>(pair / top_k) * hidden;
  float g = 0;
  float u = 0;
  for (int k = lane; k < hidden; k += 32) {
    const float value = __bfloat162float(x[k]);
    g += value * gate[k];
    u += value * up[k];
  }
  for (int step = 16; step > 0; step /= 2) {
    g += __shfl_xor_sync(0xFFFFFFFFu, g, step);
    u += __shfl_xor_sync(0xFFFFFFFFu, u, step);
  }
  if (lane == 0) {
    act[warp] = __bfloat162float(__float2bfloat16_rn(g / (1.0f + expf(-g)) * u));
  }
}

__global__ void ReferenceOut(const float* down, const float* act, const int32_t* ids,
                             const float* weights, int first_expert, int num_local, int num_tokens,
                             int top_k, int hidden, int intermediate, float* out) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (warp >= static_cast<int64_t>(num_tokens) * hidden) {
    return;
  }
  const int token = static_cast<int>(warp / hidden);
  const int row = static_cast<int>(warp % hidden);
  float total = 0;
  for (int k = 0; k < top_k; ++k) {
    const int pair = token * top_k + k;
    const int expert = ids[pair] - first_expert;
    if (expert < 0 || expert >= num_local) {
      continue;
    }
    const float* w = down + (static_cast<int64_t>(expert) * hidden + row) * intermediate;
    float sum = 0;
    for (int f = lane; f < intermediate; f += 32) {
      sum += act[static_cast<int64_t>(pair) * intermediate + f] * w[f];
    }
    for (int step = 16; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    }
    total += weights[pair] * sum;
  }
  if (lane == 0) {
    out[warp] = total;
  }
}

template <typename T>
T* DeviceNew(int64_t count) {
  void* pointer = nullptr;
  CHECK_CUDA(cudaMalloc(&pointer, static_cast<size_t>(count) * sizeof(T)));
  CHECK_CUDA(cudaMemset(pointer, 0xFF, static_cast<size_t>(count) * sizeof(T)));  // Poison.
  return static_cast<T*>(pointer);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Layer {
  unsigned char* gate_up;
  unsigned char* down;
  int32_t* ids;
  float* weights;
  __nv_bfloat16* out;
};

PanelSlice GateUpSlice(int layer, int hidden, int intermediate, int experts) {
  PanelSlice slice;
  slice.seed = 1234;
  slice.stream = static_cast<uint64_t>(2 * layer);
  slice.amplitude = std::sqrt(3.0f / static_cast<float>(hidden));
  slice.rows_full = 2 * intermediate;
  slice.cols_full = hidden;
  slice.up_row_begin = intermediate;
  slice.num_matrices = experts;
  slice.rows = 2 * intermediate;
  slice.k = hidden;
  slice.order = PanelRowOrder::kGateAndUp;
  return slice;
}

PanelSlice DownSlice(int layer, int hidden, int intermediate, int experts) {
  PanelSlice slice;
  slice.seed = 1234;
  slice.stream = static_cast<uint64_t>(2 * layer + 1);
  slice.amplitude = std::sqrt(3.0f / static_cast<float>(intermediate));
  slice.rows_full = hidden;
  slice.cols_full = intermediate;
  slice.num_matrices = experts;
  slice.rows = hidden;
  slice.k = intermediate;
  return slice;
}

void DrawRouting(std::mt19937_64& random, int batch, int top_k, int experts,
                 std::vector<int32_t>& ids, std::vector<float>& weights) {
  std::vector<int32_t> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  ids.clear();
  weights.clear();
  for (int t = 0; t < batch; ++t) {
    for (int k = 0; k < top_k; ++k) {
      const size_t pick = static_cast<size_t>(k) + random() % static_cast<size_t>(experts - k);
      std::swap(all[static_cast<size_t>(k)], all[pick]);
      ids.push_back(all[static_cast<size_t>(k)]);
      weights.push_back(0.05f + 0.2f * static_cast<float>(random() % 1000) / 1000.0f);
    }
  }
}

struct Dims {
  int hidden = 0;
  int intermediate = 0;
  int local = 0;    // Experts of this rank.
  int experts = 0;  // Of the model.
  int top_k = 0;
};

constexpr int kLayers = 4;
constexpr int kRounds = 2;  // Over the layers in one graph.
constexpr int kReplays = 32;
constexpr int kWarmUpReplays = 3;

// Layers, inputs and references on the device, and one stream.
class Bench {
 public:
  Bench(const Dims& dims, int max_batch, uint64_t seed)
      : dims_(dims), max_batch_(max_batch), random_(seed) {
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaEventCreate(&start_));
    CHECK_CUDA(cudaEventCreate(&stop_));
    for (int l = 0; l < kLayers; ++l) {
      AddLayer(l);
    }
    const auto tokens = static_cast<int64_t>(max_batch);
    in_ = DeviceNew<__nv_bfloat16>(tokens * dims.hidden);
    act_ = DeviceNew<__nv_bfloat16>(tokens * dims.top_k * dims.intermediate);
    barrier_ = DeviceNew<unsigned int>(1);
    CHECK_CUDA(cudaMemset(barrier_, 0, sizeof(unsigned int)));
    FillInputs<<<256, 256, 0, stream_>>>(in_, tokens * dims.hidden, seed);
    MakeReferenceWeights();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }

  // One JSON object on stdout. False when the kernel cannot run or is wrong.
  bool Measure(int batch, const FusedMoeConfig& config) {
    const absl::Status checked = CheckFusedMoe(ArgumentsOf(layers_[0], batch), config);
    if (!checked.ok()) {
      std::printf("{\"batch\": %d, \"stages\": %d, \"skipped\": \"%s\"}\n", batch, config.stages,
                  std::string(checked.message()).c_str());
      return false;
    }
    DrawAll(batch);
    const double error = ErrorOfFirstLayer(batch, config);
    unique_.clear();
    const double us = TimeOfCall(batch, config);
    const double touched =
        std::accumulate(unique_.begin(), unique_.end(), 0.0) / static_cast<double>(unique_.size());
    const double bytes = touched * static_cast<double>(GateUpBytes() + DownBytes()) / dims_.local;
    std::printf(
        "{\"kernel\": \"fused_moe\", \"batch\": %d, \"stages\": %d, \"blocks_per_sm\": %d, "
        "\"us\": %.2f, \"unique_experts\": %.1f, \"gb_per_s\": %.0f, \"floor_us_at_4300\": %.1f, "
        "\"error\": %.2e}\n",
        batch, config.stages, config.blocks_per_sm, us, touched, bytes / us * 1e-3, bytes / 4300e3,
        error);
    std::fflush(stdout);
    return error < 0.01;
  }

 private:
  int64_t GateUpBytes() const {
    return dims_.local * PanelMatrixBytes(2 * dims_.intermediate, dims_.hidden);
  }
  int64_t DownBytes() const {
    return dims_.local * PanelMatrixBytes(dims_.hidden, dims_.intermediate);
  }
  PanelSlice GateUp(int layer) const {
    return GateUpSlice(layer, dims_.hidden, dims_.intermediate, dims_.local);
  }
  PanelSlice Down(int layer) const {
    return DownSlice(layer, dims_.hidden, dims_.intermediate, dims_.local);
  }

  void AddLayer(int index) {
    Layer layer{};
    layer.gate_up = DeviceNew<unsigned char>(GateUpBytes());
    layer.down = DeviceNew<unsigned char>(DownBytes());
    layer.ids = DeviceNew<int32_t>(max_batch_ * dims_.top_k);
    layer.weights = DeviceNew<float>(max_batch_ * dims_.top_k);
    layer.out = DeviceNew<__nv_bfloat16>(static_cast<int64_t>(max_batch_) * dims_.hidden);
    FillPanels<<<132 * 8, 256, 0, stream_>>>(GateUp(index), layer.gate_up);
    FillPanels<<<132 * 8, 256, 0, stream_>>>(Down(index), layer.down);
    CHECK_CUDA(cudaGetLastError());
    layers_.push_back(layer);
  }

  void MakeReferenceWeights() {
    const int64_t half = static_cast<int64_t>(dims_.local) * dims_.hidden * dims_.intermediate;
    reference_gate_up_ = DeviceNew<float>(2 * half);
    reference_down_ = DeviceNew<float>(half);
    FillDequantized<<<132 * 8, 256, 0, stream_>>>(GateUp(0), reference_gate_up_);
    FillDequantized<<<132 * 8, 256, 0, stream_>>>(Down(0), reference_down_);
    reference_act_ =
        DeviceNew<float>(static_cast<int64_t>(max_batch_) * dims_.top_k * dims_.intermediate);
    reference_out_ = DeviceNew<float>(static_cast<int64_t>(max_batch_) * dims_.hidden);
  }

  FusedMoeArguments ArgumentsOf(const Layer& layer, int batch) const {
    FusedMoeArguments a{};
    a.gate_up = layer.gate_up;
    a.down = layer.down;
    a.in = in_;
    a.expert_ids = layer.ids;
    a.expert_weights = layer.weights;
    a.act = act_;
    a.out = layer.out;
    a.barrier = barrier_;
    a.num_tokens = batch;
    a.top_k = dims_.top_k;
    a.num_local_experts = dims_.local;
    a.hidden = dims_.hidden;
    a.intermediate = dims_.intermediate;
    return a;
  }

  // Fresh routing for every layer, in place before it returns.
  void DrawAll(int batch) {
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (const Layer& layer : layers_) {
      DrawRouting(random_, batch, dims_.top_k, dims_.experts, ids, weights);
      std::set<int32_t> touched;
      for (const int32_t id : ids) {
        if (id < dims_.local) {
          touched.insert(id);
        }
      }
      unique_.push_back(static_cast<double>(touched.size()));
      CHECK_CUDA(cudaMemcpyAsync(layer.ids, ids.data(), ids.size() * sizeof(int32_t),
                                 cudaMemcpyHostToDevice, stream_));
      CHECK_CUDA(cudaMemcpyAsync(layer.weights, weights.data(), weights.size() * sizeof(float),
                                 cudaMemcpyHostToDevice, stream_));
      CHECK_CUDA(cudaStreamSynchronize(stream_));
    }
  }

  void Launch(const Layer& layer, int batch, const FusedMoeConfig& config) {
    const absl::Status status = LaunchFusedMoe(ArgumentsOf(layer, batch), config, stream_);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      std::exit(5);
    }
  }

  // ||out - reference|| / ||reference|| of layer 0, its buffers poisoned before.
  double ErrorOfFirstLayer(int batch, const FusedMoeConfig& config) {
    const Layer& layer = layers_[0];
    const int pairs = batch * dims_.top_k;
    const int64_t act_count = static_cast<int64_t>(pairs) * dims_.intermediate;
    const int64_t out_count = static_cast<int64_t>(batch) * dims_.hidden;
    CHECK_CUDA(cudaMemset(act_, 0xFF, static_cast<size_t>(act_count) * 2));
    CHECK_CUDA(cudaMemset(layer.out, 0xFF, static_cast<size_t>(out_count) * 2));
    Launch(layer, batch, config);
    ReferenceAct<<<static_cast<unsigned>((act_count * 32 + 255) / 256), 256, 0, stream_>>>(
        reference_gate_up_, in_, layer.ids, 0, dims_.local, pairs, dims_.top_k, dims_.hidden,
        dims_.intermediate, reference_act_);
    ReferenceOut<<<static_cast<unsigned>((out_count * 32 + 255) / 256), 256, 0, stream_>>>(
        reference_down_, reference_act_, layer.ids, layer.weights, 0, dims_.local, batch,
        dims_.top_k, dims_.hidden, dims_.intermediate, reference_out_);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    std::vector<__nv_bfloat16> out(static_cast<size_t>(out_count));
    std::vector<float> wanted(static_cast<size_t>(out_count));
    CHECK_CUDA(cudaMemcpy(out.data(), layer.out, out.size() * 2, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(wanted.data(), reference_out_, wanted.size() * sizeof(float),
                          cudaMemcpyDeviceToHost));
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double d = static_cast<double>(__bfloat162float(out[i])) - wanted[i];
      difference += d * d;
      norm += static_cast<double>(wanted[i]) * wanted[i];
    }
    return std::sqrt(difference / norm);
  }

  // Median over replays of a graph of layer calls, a call.
  double TimeOfCall(int batch, const FusedMoeConfig& config) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int call = 0; call < kRounds * kLayers; ++call) {
      Launch(layers_[static_cast<size_t>(call % kLayers)], batch, config);
    }
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<double> times;
    for (int replay = 0; replay < kWarmUpReplays + kReplays; ++replay) {
      DrawAll(batch);
      CHECK_CUDA(cudaEventRecord(start_, stream_));
      CHECK_CUDA(cudaGraphLaunch(executable, stream_));
      CHECK_CUDA(cudaEventRecord(stop_, stream_));
      CHECK_CUDA(cudaStreamSynchronize(stream_));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start_, stop_));
      if (replay >= kWarmUpReplays) {
        times.push_back(static_cast<double>(ms) * 1000.0 / (kRounds * kLayers));
      }
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return Median(times);
  }

  const Dims dims_;
  const int max_batch_;
  std::mt19937_64 random_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<double> unique_;
  __nv_bfloat16* in_ = nullptr;
  __nv_bfloat16* act_ = nullptr;
  unsigned int* barrier_ = nullptr;
  float* reference_gate_up_ = nullptr;
  float* reference_down_ = nullptr;
  float* reference_act_ = nullptr;
  float* reference_out_ = nullptr;
};

int Main(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr, "usage: %s HIDDEN INTERMEDIATE LOCAL EXPERTS TOP_K BATCHES SEED\n",
                 argv[0]);
    return 2;
  }
  Dims dims;
  dims.hidden = std::atoi(argv[1]);
  dims.intermediate = std::atoi(argv[2]);
  dims.local = std::atoi(argv[3]);
  dims.experts = std::atoi(argv[4]);
  dims.top_k = std::atoi(argv[5]);
  std::vector<int> batches;
  for (char* part = std::strtok(argv[6], ","); part != nullptr; part = std::strtok(nullptr, ",")) {
    batches.push_back(std::atoi(part));
  }
  Bench bench(dims, *std::max_element(batches.begin(), batches.end()),
              std::strtoull(argv[7], nullptr, 10));
  bool is_right = true;
  for (const int batch : batches) {
    for (const int stages : {2, 3, 4}) {
      FusedMoeConfig config;
      config.stages = stages;
      is_right = bench.Measure(batch, config) && is_right;
    }
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::Main(argc, argv); }
