// Times a whole MoE layer call cold on one GPU, from top-k ids to the combined output: the grouped
// kernels (permute, gate_up, swiglu, down, combine) and the fused one. A graph of layer calls
// rotates over several layers' weights, with fresh routing for every replay; outputs are checked
// against plain fp32 kernels before and after.
//
// usage: moe_gpu_bench HIDDEN INTERMEDIATE(rank) EXPERTS(local) EXPERTS(model) TOP_K FORMAT BATCHES
//                      SEED [parts] [tile=N] [stages=N] [replays=N] [fused=0|1] [layers=N]
//                      [swiglu=0|1] [early=0|1]
// FORMAT is bf16, int4_g32 or int4_g128. Prints one JSON object a batch and kernel on stdout.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/weights_random_cuda.h"
#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/moe_combine/moe_combine_cuda.h"
#include "kernels/permute/permute_cuda.h"
#include "kernels/swiglu/swiglu_cuda.h"

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

void CheckOk(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(5);
  }
}

__global__ void FillInputs(__nv_bfloat16* out, int64_t count, uint64_t seed) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    out[i] =
        __float2bfloat16_rn((CounterUniform(seed, 99, static_cast<uint64_t>(i)) - 0.5f) * 3.4641f);
  }
}

// Reads 16 bytes a thread, four at a time.
__global__ void ReadAll(const uint4* in, int64_t count, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[j] = __ldg(in + i + j * stride);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum ^= words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
    }
  }
  for (; i < count; i += stride) {
    sum ^= in[i].x;
  }
  if (sum == 0x12345678u) {
    *out = sum;
  }
}

template <typename T>
T* DeviceNew(int64_t count) {
  void* pointer = nullptr;
  CHECK_CUDA(cudaMalloc(&pointer, static_cast<size_t>(count) * sizeof(T)));
  CHECK_CUDA(cudaMemset(pointer, 0xFF, static_cast<size_t>(count) * sizeof(T)));  // Poison.
  return static_cast<T*>(pointer);
}

template <typename T>
std::vector<T> Download(const T* from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  CHECK_CUDA(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

struct Options {
  int hidden = 0;
  int intermediate = 0;
  int local = 0;    // Experts of this rank.
  int experts = 0;  // Of the model.
  int top_k = 0;
  WeightStorage storage;
  std::vector<int> batches;
  uint64_t seed = 0;
  bool parts = false;
  int tile_tokens = 0;  // 0: by the rule.
  int stages = 0;
  int replays = 32;
  bool fused = true;
  bool early = false;   // Down asks for weights before gate_up has ended.
  bool swiglu = false;  // In gate_up's epilogue.
  int layers = 4;
};

struct Layer {
  CudaWeightSlice gate_up;
  CudaWeightSlice down;
  unsigned char* gate_up_panels = nullptr;
  unsigned char* down_panels = nullptr;
  int32_t* ids = nullptr;
  float* weights = nullptr;
  void* pairs_memory = nullptr;
  __nv_bfloat16* out = nullptr;
};

constexpr int kRounds = 2;  // Over the layers in one graph.
constexpr int kWarmUpReplays = 3;

class Bench {
 public:
  explicit Bench(const Options& options) : o_(options), random_(options.seed) {
    max_batch_ = *std::max_element(o_.batches.begin(), o_.batches.end());
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaEventCreate(&start_));
    CHECK_CUDA(cudaEventCreate(&stop_));
    for (int l = 0; l < o_.layers; ++l) {
      AddLayer(l);
    }
    const int64_t tokens = max_batch_;
    const int64_t slots = tokens * o_.top_k;
    in_ = DeviceNew<__nv_bfloat16>(tokens * o_.hidden);
    gate_up_ = DeviceNew<__nv_bfloat16>(slots * 2 * o_.intermediate);
    act_ = DeviceNew<__nv_bfloat16>(slots * o_.intermediate);
    down_ = DeviceNew<__nv_bfloat16>(slots * o_.hidden);
    FusedMoeShape fused = FusedShape(max_batch_);
    fused_workspace_ = DeviceNew<unsigned char>(FusedMoeCudaWorkspaceBytes(fused));
    CHECK_CUDA(cudaMemset(fused_workspace_, 0, 256));
    sink_ = DeviceNew<uint32_t>(1);
    FillInputs<<<256, 256, 0, stream_>>>(in_, tokens * o_.hidden, o_.seed);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }

  // Prints its rows. False when an output is wrong.
  bool Measure(int batch) {
    batch_ = batch;
    tile_tokens_ = o_.tile_tokens != 0 ? o_.tile_tokens : PairTileTokens(PermuteShapeOf());
    const double read_us = ReadTime();
    bool is_right = MeasureKernel("grouped", read_us, [this](Layer& layer) { Grouped(layer); });
    const absl::Status checked = CheckFusedMoeCuda(FusedShape(batch), {});
    if (o_.fused && checked.ok()) {
      is_right =
          MeasureKernel("fused_moe", read_us, [this](Layer& layer) { Fused(layer); }) && is_right;
    } else if (o_.fused) {
      std::printf("{\"kernel\": \"fused_moe\", \"batch\": %d, \"skipped\": \"%s\"}\n", batch,
                  std::string(checked.message()).c_str());
    }
    return is_right;
  }

 private:
  CudaWeightSlice Slice(int stream, int64_t rows, int64_t cols, int parts) const {
    CudaWeightSlice slice;
    slice.seed = 1234;
    slice.stream = static_cast<uint64_t>(stream);
    slice.amplitude = std::sqrt(3.0f / static_cast<float>(cols));
    slice.rows_full = rows;
    slice.cols_full = cols;
    slice.num_matrices = o_.local;
    slice.num_parts = parts;
    for (int part = 0; part < parts; ++part) {
      slice.part_rows[part] = rows / parts;
      slice.part_row_begin[part] = part * (rows / parts);
    }
    slice.cols = cols;
    slice.group_size = static_cast<int>(o_.storage.group_size);
    return slice;
  }

  void AddLayer(int index) {
    Layer layer;
    layer.gate_up = Slice(2 * index, 2 * o_.intermediate, o_.hidden, 2);
    layer.down = Slice(2 * index + 1, o_.hidden, o_.intermediate, 1);
    layer.gate_up_panels = DeviceNew<unsigned char>(PanelBytes(layer.gate_up));
    layer.down_panels = DeviceNew<unsigned char>(PanelBytes(layer.down));
    layer.ids = DeviceNew<int32_t>(static_cast<int64_t>(max_batch_) * o_.top_k);
    layer.weights = DeviceNew<float>(static_cast<int64_t>(max_batch_) * o_.top_k);
    layer.out = DeviceNew<__nv_bfloat16>(static_cast<int64_t>(max_batch_) * o_.hidden);
    batch_ = max_batch_;
    layer.pairs_memory = DeviceNew<unsigned char>(PairsBytes(PermuteShapeOf(), 8));
    CheckOk(
        LaunchFillPanels(layer.gate_up, CudaRowOrder::kGateAndUp, layer.gate_up_panels, stream_));
    CheckOk(LaunchFillPanels(layer.down, CudaRowOrder::kPlain, layer.down_panels, stream_));
    layers_.push_back(layer);
  }

  PermuteShape PermuteShapeOf() const {
    return {.num_tokens = batch_,
            .top_k = o_.top_k,
            .num_experts = o_.experts,
            .first_expert = 0,
            .num_local_experts = o_.local};
  }
  ExpertGemmShape GemmShapeOf(bool is_gate_up) const {
    return {.num_tokens = batch_,
            .top_k = o_.top_k,
            .num_local_experts = o_.local,
            .out_features = is_gate_up ? 2 * o_.intermediate : o_.hidden,
            .in_features = is_gate_up ? o_.hidden : o_.intermediate,
            .gather_tokens = is_gate_up,
            .swiglu = is_gate_up && o_.swiglu,
            .storage = o_.storage};
  }
  FusedMoeShape FusedShape(int batch) const {
    return {.num_tokens = batch,
            .top_k = o_.top_k,
            .num_local_experts = o_.local,
            .hidden_size = o_.hidden,
            .moe_intermediate_size = o_.intermediate,
            .storage = o_.storage};
  }
  ActivationShape SwigluShapeOf() const {
    return {.rows = static_cast<int64_t>(batch_) * o_.top_k,
            .intermediate_size = o_.intermediate,
            .rows_are_pairs = true};
  }
  CudaPairs PairsOf(const Layer& layer) const {
    return PlacePairs(PermuteShapeOf(), tile_tokens_, layer.pairs_memory);
  }

  void Permute(Layer& layer) {
    CheckOk(LaunchPermute(PermuteShapeOf(), layer.ids, layer.weights, PairsOf(layer), stream_));
  }
  void GateUp(Layer& layer) {
    const GroupedGemmCudaConfig config = {.row_order = CudaRowOrder::kGateAndUp,
                                          .stages = o_.stages};
    CheckOk(LaunchGroupedGemm(GemmShapeOf(true), PairsOf(layer), layer.gate_up_panels, in_,
                              o_.swiglu ? act_ : gate_up_, config, stream_));
  }
  void Swiglu(Layer& layer) {
    const CudaPairs pairs = PairsOf(layer);
    CheckOk(LaunchSwiglu(SwigluShapeOf(), &pairs, gate_up_, act_, stream_));
  }
  void Down(Layer& layer) {
    CheckOk(LaunchGroupedGemm(GemmShapeOf(false), PairsOf(layer), layer.down_panels, act_, down_,
                              {.early_weights = o_.early, .stages = o_.stages}, stream_));
  }
  void Combine(Layer& layer) {
    const CombineShape shape = {.num_tokens = batch_, .top_k = o_.top_k, .hidden_size = o_.hidden};
    CheckOk(LaunchMoeCombine(shape, PairsOf(layer), down_, nullptr, layer.out, stream_));
  }
  void Grouped(Layer& layer) {
    Permute(layer);
    GateUp(layer);
    if (!o_.swiglu) {
      Swiglu(layer);
    }
    Down(layer);
    Combine(layer);
  }
  void Fused(Layer& layer) {
    FusedMoeTensors tensors;
    tensors.gate_up = layer.gate_up_panels;
    tensors.down = layer.down_panels;
    tensors.in = in_;
    tensors.expert_ids = layer.ids;
    tensors.expert_weights = layer.weights;
    tensors.out = layer.out;
    tensors.workspace = fused_workspace_;
    CheckOk(LaunchFusedMoeCuda(FusedShape(batch_), tensors, {.stages = o_.stages}, stream_));
  }

  // Fresh routing for every layer, in place before it returns.
  void DrawAll() {
    std::vector<int32_t> all(static_cast<size_t>(o_.experts));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (const Layer& layer : layers_) {
      ids.clear();
      weights.clear();
      std::set<int32_t> touched;
      for (int t = 0; t < batch_; ++t) {
        for (size_t k = 0; k < static_cast<size_t>(o_.top_k); ++k) {
          std::swap(all[k], all[k + random_() % (all.size() - k)]);
          ids.push_back(all[k]);
          weights.push_back(0.05f + 0.2f * static_cast<float>(random_() % 1000) / 1000.0f);
          if (all[k] < o_.local) {
            touched.insert(all[k]);
          }
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

  // Layer 0 by plain fp32 kernels, activations rounded to bf16 between the halves.
  void MakeReference() {
    Layer& layer = layers_[0];
    Permute(layer);
    const CudaPairs pairs = PairsOf(layer);
    const int64_t slots = static_cast<int64_t>(batch_) * o_.top_k;
    const int64_t rows = 2 * o_.intermediate;
    float* wide = DeviceNew<float>(slots * std::max<int64_t>(rows, o_.hidden));
    ExpertGemmShape sums = GemmShapeOf(true);
    sums.swiglu = false;
    CheckOk(
        LaunchGroupedGemmReference(sums, pairs, layer.gate_up, in_, nullptr, rows, wide, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    const std::vector<float> gate_up = Download(wide, slots * rows);
    std::vector<__nv_bfloat16> act(static_cast<size_t>(slots * o_.intermediate));
    for (int64_t p = 0; p < slots; ++p) {
      for (int64_t f = 0; f < o_.intermediate; ++f) {
        const float g = gate_up[static_cast<size_t>(p * rows + f)];
        const float u = gate_up[static_cast<size_t>(p * rows + o_.intermediate + f)];
        act[static_cast<size_t>(p * o_.intermediate + f)] =
            __float2bfloat16_rn(g / (1.0f + std::exp(-g)) * u);
      }
    }
    CHECK_CUDA(cudaMemcpy(act_, act.data(), act.size() * 2, cudaMemcpyHostToDevice));
    CheckOk(LaunchGroupedGemmReference(GemmShapeOf(false), pairs, layer.down, act_, nullptr,
                                       o_.hidden, wide, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    const std::vector<float> down = Download(wide, slots * o_.hidden);
    const std::vector<int32_t> pair_of = Download(pairs.pair_of, slots);
    const std::vector<float> weight = Download(layer.weights, slots);
    CHECK_CUDA(cudaFree(wide));
    wanted_.assign(static_cast<size_t>(batch_) * static_cast<size_t>(o_.hidden), 0.0f);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int32_t pair = pair_of[static_cast<size_t>(slot)];
      for (int64_t h = 0; pair >= 0 && h < o_.hidden; ++h) {
        wanted_[static_cast<size_t>(slot / o_.top_k * o_.hidden + h)] +=
            weight[static_cast<size_t>(slot)] * down[static_cast<size_t>(pair * o_.hidden + h)];
      }
    }
  }

  // ||out - reference|| / ||reference|| of layer 0, buffers poisoned before.
  double Error(const std::function<void(Layer&)>& call) {
    Layer& layer = layers_[0];
    const int64_t slots = static_cast<int64_t>(batch_) * o_.top_k;
    const int64_t count = static_cast<int64_t>(batch_) * o_.hidden;
    CHECK_CUDA(cudaMemset(gate_up_, 0xFF, static_cast<size_t>(slots * 4 * o_.intermediate)));
    CHECK_CUDA(cudaMemset(act_, 0xFF, static_cast<size_t>(slots * 2 * o_.intermediate)));
    CHECK_CUDA(cudaMemset(down_, 0xFF, static_cast<size_t>(slots * 2 * o_.hidden)));
    CHECK_CUDA(cudaMemset(layer.out, 0xFF, static_cast<size_t>(count) * 2));
    call(layer);
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    const std::vector<__nv_bfloat16> out = Download(layer.out, count);
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double d = static_cast<double>(__bfloat162float(out[i])) - wanted_[i];
      difference += d * d;
      norm += static_cast<double>(wanted_[i]) * wanted_[i];
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  }

  // Times of a call, one a replay of a graph of calls.
  std::vector<double> Time(const std::function<void(Layer&)>& call, bool fresh) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kRounds * o_.layers; ++i) {
      call(layers_[static_cast<size_t>(i % o_.layers)]);
    }
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<double> times;
    for (int replay = 0; replay < kWarmUpReplays + o_.replays; ++replay) {
      if (fresh) {
        DrawAll();
      }
      CHECK_CUDA(cudaEventRecord(start_, stream_));
      CHECK_CUDA(cudaGraphLaunch(executable, stream_));
      CHECK_CUDA(cudaEventRecord(stop_, stream_));
      CHECK_CUDA(cudaStreamSynchronize(stream_));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start_, stop_));
      if (replay >= kWarmUpReplays) {
        times.push_back(static_cast<double>(ms) * 1000.0 / (kRounds * o_.layers));
      }
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return times;
  }

  double BytesOfExpert() const {
    return static_cast<double>(PanelBytes(layers_[0].gate_up) + PanelBytes(layers_[0].down)) /
           o_.local;
  }

  // Cold read of as many bytes as a call's experts have, in the same kind of graph.
  double ReadTime() {
    unique_.clear();
    for (int i = 0; i < 8; ++i) {
      DrawAll();
    }
    const double touched =
        std::accumulate(unique_.begin(), unique_.end(), 0.0) / static_cast<double>(unique_.size());
    const auto bytes = static_cast<int64_t>(touched * BytesOfExpert());
    const int64_t of_first = std::min<int64_t>(bytes, PanelBytes(layers_[0].gate_up));
    return Quantile(Time(
                        [&](Layer& layer) {
                          ReadAll<<<132 * 8, 256, 0, stream_>>>(
                              reinterpret_cast<const uint4*>(layer.gate_up_panels), of_first / 16,
                              sink_);
                          if (bytes > of_first) {
                            ReadAll<<<132 * 8, 256, 0, stream_>>>(
                                reinterpret_cast<const uint4*>(layer.down_panels),
                                (bytes - of_first) / 16, sink_);
                          }
                        },
                        false),
                    0.5);
  }

  bool MeasureKernel(const char* name, double read_us, const std::function<void(Layer&)>& call) {
    DrawAll();
    MakeReference();
    const double before = Error(call);
    unique_.clear();
    const std::vector<double> times = Time(call, true);
    const double us = Quantile(times, 0.5);
    const double touched =
        std::accumulate(unique_.begin(), unique_.end(), 0.0) / static_cast<double>(unique_.size());
    MakeReference();
    const double error = std::max(before, Error(call));
    const double bytes = touched * BytesOfExpert();
    std::printf(
        "{\"kernel\": \"%s\", \"batch\": %d, \"us\": %.2f, \"unique_experts\": %.1f, "
        "\"floor_us\": %.2f, \"read_us\": %.2f, \"read_share\": %.3f, \"gb_per_s\": %.0f, "
        "\"noise\": %.4f, \"error\": %.2e, \"config\": \"format=%s tile_tokens=%d stages=%d "
        "swiglu=%s early_weights=%d seed=%llu\"",
        name, batch_, us, touched, bytes / 4300e3, read_us, read_us / us, bytes / us * 1e-3,
        (Quantile(times, 0.75) - Quantile(times, 0.25)) / us, error,
        std::string(ToWord(o_.storage.format)).c_str(), tile_tokens_, o_.stages,
        o_.swiglu ? "epilogue" : "kernel", o_.early ? 1 : 0,
        static_cast<unsigned long long>(o_.seed));
    if (o_.parts && std::strcmp(name, "grouped") == 0) {
      const std::pair<const char*, void (Bench::*)(Layer&)> parts[] = {
          {"permute_us", &Bench::Permute},
          {"gate_up_us", &Bench::GateUp},
          {"swiglu_us", &Bench::Swiglu},
          {"down_us", &Bench::Down},
          {"combine_us", &Bench::Combine}};
      for (Layer& layer : layers_) {
        Grouped(layer);
      }
      for (const auto& [part, method] : parts) {
        const auto run = method;
        std::printf(", \"%s\": %.2f", part,
                    Quantile(Time([this, run](Layer& layer) { (this->*run)(layer); }, false), 0.5));
      }
    }
    std::printf("}\n");
    std::fflush(stdout);
    return error < 0.01;
  }

  const Options o_;
  int max_batch_ = 0;
  int batch_ = 0;
  int tile_tokens_ = 0;
  std::mt19937_64 random_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<double> unique_;
  std::vector<float> wanted_;
  __nv_bfloat16* in_ = nullptr;
  __nv_bfloat16* gate_up_ = nullptr;
  __nv_bfloat16* act_ = nullptr;
  __nv_bfloat16* down_ = nullptr;
  unsigned char* fused_workspace_ = nullptr;
  uint32_t* sink_ = nullptr;
};

int ValueOf(const char* argument, const char* key, int otherwise) {
  const size_t length = std::strlen(key);
  return std::strncmp(argument, key, length) == 0 ? std::atoi(argument + length) : otherwise;
}

int Main(int argc, char** argv) {
  if (argc < 9) {
    std::fprintf(
        stderr,
        "usage: %s HIDDEN INTERMEDIATE LOCAL EXPERTS TOP_K FORMAT BATCHES SEED [parts] "
        "[tile=N] [stages=N] [replays=N] [fused=0|1] [layers=N] [swiglu=0|1] [early=0|1]\n",
        argv[0]);
    return 2;
  }
  Options o;
  o.hidden = std::atoi(argv[1]);
  o.intermediate = std::atoi(argv[2]);
  o.local = std::atoi(argv[3]);
  o.experts = std::atoi(argv[4]);
  o.top_k = std::atoi(argv[5]);
  const auto format = FromWord<WeightFormat>(argv[6]);
  if (!format.has_value()) {
    std::fprintf(stderr, "FORMAT %s\n", argv[6]);
    return 2;
  }
  o.storage.format = *format;
  o.storage.group_size = *format == WeightFormat::kInt4G32    ? 32
                         : *format == WeightFormat::kInt4G128 ? 128
                                                              : 0;
  for (char* part = std::strtok(argv[7], ","); part != nullptr; part = std::strtok(nullptr, ",")) {
    o.batches.push_back(std::atoi(part));
  }
  o.seed = std::strtoull(argv[8], nullptr, 10);
  for (int i = 9; i < argc; ++i) {
    o.parts = o.parts || std::strcmp(argv[i], "parts") == 0;
    o.tile_tokens = ValueOf(argv[i], "tile=", o.tile_tokens);
    o.stages = ValueOf(argv[i], "stages=", o.stages);
    o.replays = ValueOf(argv[i], "replays=", o.replays);
    o.fused = ValueOf(argv[i], "fused=", o.fused ? 1 : 0) != 0;
    o.swiglu = ValueOf(argv[i], "swiglu=", o.swiglu ? 1 : 0) != 0;
    o.early = ValueOf(argv[i], "early=", o.early ? 1 : 0) != 0;
    o.layers = ValueOf(argv[i], "layers=", o.layers);
  }
  Bench bench(o);
  bool is_right = true;
  for (const int batch : o.batches) {
    is_right = bench.Measure(batch) && is_right;
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::Main(argc, argv); }
