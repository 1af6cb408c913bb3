// Measures the routed-expert kernels of the CPU backend against a plain parallel read on the same
// cores, at a model's dimensions of one rank, with weights that are cold as in a model.
//
//   build/bin/moe_bench [qwen3|kimi] [bf16|int4_g32|int4_g128] [THREADS] [wall|cpu]
//
// Prints for each batch the median over samples of each kernel's time, the bytes of weights that
// the batch touches and GB/s. Shared machines are noisy: run it several times. `cpu` takes the
// process's CPU time over its threads instead of the wall clock: on a busy machine, with one
// thread, it leaves out what others ran meanwhile (but not their share of the memory bandwidth).

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/weights_random.h"
#include "kernels/dequant/dequant.h"
#include "kernels/fused_moe/fused_moe.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/swiglu/swiglu.h"

namespace lastflop {
namespace {

// Microseconds of the clock that the command line asks for.
class Stopwatch {
 public:
  Stopwatch(bool cpu_time, int num_threads) : cpu_time_(cpu_time), num_threads_(num_threads) {}

  double Now() const {
    timespec time = {};
    clock_gettime(cpu_time_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    const double micros =
        static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
    return cpu_time_ ? micros / num_threads_ : micros;
  }

  template <typename F>
  double Time(const F& run) const {
    const double start = Now();
    run();
    return Now() - start;
  }

 private:
  const bool cpu_time_;
  const int num_threads_;
};

// One rank of a model, with a few layers so that weights are cold when they come round again.
struct Dims {
  const char* name = "";
  int64_t hidden_size = 0;
  int64_t intermediate = 0;  // Of this rank.
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t num_layers = 0;
};
constexpr Dims kQwen3 = {"Qwen3-30B-A3B, rank of TP2", 2048, 384, 128, 8, 3};
constexpr Dims kKimi = {"Kimi-K2.5, rank of TP8", 7168, 256, 384, 8, 1};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// A plain read: eight independent 64-byte streams' worth of adds, nothing else.
using Vector = int64_t __attribute__((vector_size(32)));
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
int64_t
ReadBytes(const std::byte* data, int64_t bytes) {
  const auto* at = reinterpret_cast<const Vector*>(data);
  Vector sums[4] = {};
  for (int64_t i = 0; i < bytes / 128; ++i, at += 4) {
    for (int j = 0; j < 4; ++j) {
      sums[j] += at[j];
    }
  }
  const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// Reads pieces of 8 MB, about what a batch of one token touches, each in its turn cold.
double ReadBandwidth(const AlignedBuffer& buffer, const Stopwatch& watch, ThreadPool& pool) {
  constexpr int64_t kChunk = 64 << 10;
  constexpr int64_t kPiece = 8 << 20;
  const int64_t num_pieces = static_cast<int64_t>(buffer.bytes()) / kPiece;
  std::vector<double> micros;
  std::atomic<int64_t> sink = 0;
  for (int64_t piece = 0; piece < std::min<int64_t>(num_pieces, 60); ++piece) {
    micros.push_back(watch.Time([&] {
      pool.ParallelFor(kPiece / kChunk, [&](int64_t task, int) {
        sink += ReadBytes(buffer.data() + piece * kPiece + task * kChunk, kChunk);
      });
    }));
  }
  return static_cast<double>(kPiece) / Median(micros) * 1e-3;
}

struct Matrices {
  PackedLayout layout;  // num_experts * num_layers matrices.
  AlignedBuffer data;
  PackedWeights Layer(const Dims& dims, int64_t layer) const {
    return {.layout = &layout,
            .data = data.data() + layer * dims.num_experts * layout.matrix_bytes};
  }
};

Matrices MakeMatrices(const Dims& dims, WeightFormat format, std::vector<int64_t> part_rows,
                      int64_t cols, ThreadPool& pool) {
  Matrices matrices;
  WeightSlice slice = {.seed = 1,
                       .stream = static_cast<uint64_t>(part_rows.size()),
                       .amplitude = std::sqrt(3.0f / static_cast<float>(cols)),
                       .rows_full = std::accumulate(part_rows.begin(), part_rows.end(), int64_t{}),
                       .cols_full = cols};
  for (size_t part = 0; part < part_rows.size(); ++part) {
    slice.part_row_begin.push_back(part == 0 ? 0 : part_rows[0]);
  }
  matrices.layout = PackedLayout::Create({.format = format}, dims.num_experts * dims.num_layers,
                                         std::move(part_rows), cols)
                        .value();
  matrices.data = AlignedBuffer::Create(matrices.layout.bytes()).value();
  FillRandomWeights(slice, matrices.layout, matrices.data.data(), pool);
  return matrices;
}

// A batch: its routing and tensors.
struct Batch {
  int64_t num_tokens = 0;
  PairBuffer pairs;
  std::vector<Bf16> in, gate_up, act, expert_out, out;
  AlignedBuffer workspace;
};

class Bench {
 public:
  Bench(const Dims& dims, WeightFormat format, const Stopwatch& watch, ThreadPool& pool)
      : dims_(dims), watch_(watch), pool_(pool), storage_{.format = format} {
    const double start = watch.Now();
    gate_up_ =
        MakeMatrices(dims, format, {dims.intermediate, dims.intermediate}, dims.hidden_size, pool);
    down_ = MakeMatrices(dims, format, {dims.hidden_size}, dims.intermediate, pool);
    const double bytes = static_cast<double>(gate_up_.data.bytes() + down_.data.bytes());
    std::printf("filled %.2f GB of weights in %.2f s\n", bytes * 1e-9,
                (watch.Now() - start) * 1e-6);
  }

  double read_gb_per_s() { return ReadBandwidth(gate_up_.data, watch_, pool_); }

  // An empty ParallelFor, threads awake.
  double dispatch_us() {
    std::vector<double> micros;
    for (int sample = 0; sample < 2000; ++sample) {
      micros.push_back(
          watch_.Time([&] { pool_.ParallelFor(pool_.num_threads(), [](int64_t, int) {}); }));
    }
    return Median(micros);
  }

  void Run(int64_t num_tokens, TileOrder order) {
    const PermuteShape permute = {.num_tokens = num_tokens,
                                  .top_k = dims_.top_k,
                                  .num_experts = dims_.num_experts,
                                  .num_local_experts = dims_.num_experts};
    Batch batch{.num_tokens = num_tokens, .pairs = PairBuffer(permute)};
    Allocate(batch, order);
    std::vector<double> gate_up, swiglu, down, combine, fused, bytes;
    const int num_samples = num_tokens >= 64 ? 15 : 40;
    for (int sample = 0; sample < num_samples; ++sample) {
      Route(permute, batch);
      const int64_t layer = sample % dims_.num_layers;
      bytes.push_back(TouchedBytes(batch));
      gate_up.push_back(watch_.Time([&] { GateUp(batch, layer, order); }));
      swiglu.push_back(watch_.Time([&] { Activate(batch); }));
      down.push_back(watch_.Time([&] { Down(batch, layer, order); }));
      combine.push_back(watch_.Time([&] { Combine(batch); }));
    }
    for (int sample = 0; sample < num_samples; ++sample) {
      Route(permute, batch);
      fused.push_back(watch_.Time([&] { Fused(batch, sample % dims_.num_layers, order); }));
    }
    const double total_bytes = Median(bytes);
    const double grouped = Median(gate_up) + Median(swiglu) + Median(down) + Median(combine);
    std::printf(
        "M=%-4lld %-12s touched %7.1f MB | gate_up %8.0f us %5.1f GB/s, swiglu %5.0f, down %8.0f us"
        " %5.1f GB/s, combine %5.0f | grouped %8.0f us %5.1f GB/s | fused %8.0f us %5.1f GB/s\n",
        static_cast<long long>(num_tokens), std::string(ToWord(order)).c_str(), total_bytes * 1e-6,
        Median(gate_up), total_bytes * 2 / 3 / Median(gate_up) * 1e-3, Median(swiglu), Median(down),
        total_bytes / 3 / Median(down) * 1e-3, Median(combine), grouped,
        total_bytes / grouped * 1e-3, Median(fused), total_bytes / Median(fused) * 1e-3);
  }

 private:
  ExpertGemmShape GemmShape(int64_t num_tokens, bool is_gate_up, TileOrder order) const {
    return {.num_tokens = num_tokens,
            .top_k = dims_.top_k,
            .num_local_experts = dims_.num_experts,
            .out_features = is_gate_up ? 2 * dims_.intermediate : dims_.hidden_size,
            .in_features = is_gate_up ? dims_.hidden_size : dims_.intermediate,
            .gather_tokens = is_gate_up,
            .storage = storage_,
            .tile_order = order};
  }

  FusedMoeShape FusedShape(int64_t num_tokens, TileOrder order) const {
    return {.num_tokens = num_tokens,
            .top_k = dims_.top_k,
            .num_local_experts = dims_.num_experts,
            .hidden_size = dims_.hidden_size,
            .moe_intermediate_size = dims_.intermediate,
            .storage = storage_,
            .tile_order = order};
  }

  void Allocate(Batch& batch, TileOrder order) {
    const int64_t tokens = batch.num_tokens;
    const auto size = [](int64_t rows, int64_t cols) { return static_cast<size_t>(rows * cols); };
    const int64_t pairs = tokens * dims_.top_k;
    batch.in.resize(size(tokens, dims_.hidden_size));
    for (size_t i = 0; i < batch.in.size(); ++i) {
      batch.in[i] = ToBf16(static_cast<float>(i % 101) / 50.0f - 1.0f);
    }
    batch.gate_up.resize(size(pairs, 2 * dims_.intermediate));
    batch.act.resize(size(pairs, dims_.intermediate));
    batch.expert_out.resize(size(pairs, dims_.hidden_size));
    batch.out.resize(size(tokens, dims_.hidden_size));
    const int64_t bytes = std::max(
        {GroupedGemmWorkspaceBytes(GemmShape(tokens, true, order), gate_up_.layout),
         GroupedGemmWorkspaceBytes(GemmShape(tokens, false, order), down_.layout),
         FusedMoeWorkspaceBytes(FusedShape(tokens, order), gate_up_.layout, down_.layout)});
    batch.workspace = AlignedBuffer::Create(static_cast<size_t>(bytes)).value();
  }

  void Route(const PermuteShape& shape, Batch& batch) {
    std::vector<int32_t> all(static_cast<size_t>(dims_.num_experts));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < batch.num_tokens; ++t) {
      std::shuffle(all.begin(), all.end(), generator_);
      ids.insert(ids.end(), all.begin(), all.begin() + dims_.top_k);
    }
    Permute(shape, ids, std::vector<float>(ids.size(), 0.125f), batch.pairs.list());
  }

  double TouchedBytes(Batch& batch) const {
    const PairList pairs = batch.pairs.list();
    int64_t experts = 0;
    for (size_t e = 0; e + 1 < pairs.offsets.size(); ++e) {
      experts += pairs.offsets[e] != pairs.offsets[e + 1] ? 1 : 0;
    }
    return static_cast<double>(experts *
                               (gate_up_.layout.matrix_bytes + down_.layout.matrix_bytes));
  }

  void GateUp(Batch& batch, int64_t layer, TileOrder order) {
    GroupedGemm(GemmShape(batch.num_tokens, true, order), batch.pairs.list(),
                gate_up_.Layer(dims_, layer), batch.in, batch.gate_up,
                batch.workspace.As<std::byte>(batch.workspace.bytes()), pool_);
  }
  void Activate(Batch& batch) {
    const PairList pairs = batch.pairs.list();
    Swiglu({.rows = batch.num_tokens * dims_.top_k,
            .intermediate_size = dims_.intermediate,
            .rows_are_pairs = true},
           &pairs, batch.gate_up, batch.act, pool_);
  }
  void Down(Batch& batch, int64_t layer, TileOrder order) {
    GroupedGemm(GemmShape(batch.num_tokens, false, order), batch.pairs.list(),
                down_.Layer(dims_, layer), batch.act, batch.expert_out,
                batch.workspace.As<std::byte>(batch.workspace.bytes()), pool_);
  }
  void Combine(Batch& batch) {
    MoeCombine(
        {.num_tokens = batch.num_tokens, .top_k = dims_.top_k, .hidden_size = dims_.hidden_size},
        batch.pairs.list(), batch.expert_out, {}, batch.out, pool_);
  }
  void Fused(Batch& batch, int64_t layer, TileOrder order) {
    FusedMoe(FusedShape(batch.num_tokens, order), batch.pairs.list(), gate_up_.Layer(dims_, layer),
             down_.Layer(dims_, layer), batch.in, {}, batch.out,
             batch.workspace.As<std::byte>(batch.workspace.bytes()), pool_);
  }

  const Dims dims_;
  const Stopwatch watch_;
  ThreadPool& pool_;  // Outlives this.
  const WeightStorage storage_;
  Matrices gate_up_;
  Matrices down_;
  std::mt19937_64 generator_{7};
};

int Main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "qwen3";
  const std::optional<WeightFormat> format =
      FromWord<WeightFormat>(argc > 2 ? argv[2] : "int4_g32");
  const int num_threads =
      argc > 3 ? std::atoi(argv[3]) : static_cast<int>(std::thread::hardware_concurrency());
  if ((model != "qwen3" && model != "kimi") || !format.has_value() || num_threads < 1 ||
      !CheckCpuWeightFormat({.format = *format}).ok()) {
    std::fprintf(stderr,
                 "usage: moe_bench [qwen3|kimi] [bf16|int4_g32|int4_g128] [THREADS] [wall|cpu]\n");
    return 2;
  }
  const Dims dims = model == "qwen3" ? kQwen3 : kKimi;
  std::vector<int> cores(static_cast<size_t>(num_threads));
  std::iota(cores.begin(), cores.end(), 0);
  absl::StatusOr<std::unique_ptr<ThreadPool>> pool = ThreadPool::Create({.cores = cores});
  if (!pool.ok()) {
    std::fprintf(stderr, "%s\n", std::string(pool.status().message()).c_str());
    return 1;
  }
  std::printf("%s, %s, %d threads, %s\n", dims.name, std::string(ToWord(*format)).c_str(),
              num_threads, std::string(Describe((*pool)->isa())).c_str());
  const bool cpu_time = argc > 4 && absl::string_view(argv[4]) == "cpu";
  Bench bench(dims, *format, Stopwatch(cpu_time, num_threads), **pool);
  std::printf("plain parallel read %.1f GB/s, dispatch %.1f us\n", bench.read_gb_per_s(),
              bench.dispatch_us());
  for (const int64_t num_tokens : {1, 4, 16, 64}) {
    bench.Run(num_tokens, TileOrder::kRowMajor);
  }
  bench.Run(64, TileOrder::kColumnMajor);
  std::printf("plain parallel read %.1f GB/s\n", bench.read_gb_per_s());
  return 0;
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::Main(argc, argv); }
