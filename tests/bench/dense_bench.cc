// Measures the dense and attention kernels and the all-reduce of the CPU backend at the dimensions
// of Qwen3-30B-A3B on one of two ranks, beside a plain read on the same cores.
//
//   build/bin/dense_bench --benchmark_filter=Gemm
//
// Every row has the bytes that the call must read at least and its flop, as rates. Set
// LASTFLOP_BENCH_THREADS for another number of threads than all cores.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/cpu_collectives.h"
#include "collectives/gang.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weights_random.h"
#include "kernels/gemm/gemm.h"

namespace lastflop {
namespace {

std::unique_ptr<ThreadPool> MakePool() {
  const char* const asked = std::getenv("LASTFLOP_BENCH_THREADS");
  const size_t threads =
      asked != nullptr ? std::strtoul(asked, nullptr, 10) : std::thread::hardware_concurrency();
  return ThreadPool::Create({.cores = std::vector<int>(threads, -1)}).value();
}

void Report(benchmark::State& state, double bytes, double flop) {
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(bytes * iterations * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flop * iterations * 1e-9, benchmark::Counter::kIsRate);
}

// 32-byte loads and adds over 512 MiB: what the cores can read, and do nothing else.
using Vector = int64_t __attribute__((vector_size(32)));
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
int64_t
SumOf(const std::byte* data, int64_t bytes) {
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

void PlainRead(benchmark::State& state) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int64_t kChunk = 256 << 10;
  const auto pool = MakePool();
  AlignedBuffer buffer = AlignedBuffer::Create(kBytes).value();
  std::fill_n(buffer.data(), kBytes, std::byte{1});
  for (auto _ : state) {
    pool->ParallelFor(kBytes / kChunk, [&](int64_t i, int) {
      benchmark::DoNotOptimize(SumOf(buffer.data() + i * kChunk, kChunk));
    });
  }
  Report(state, static_cast<double>(kBytes), 0);
}
BENCHMARK(PlainRead)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Copies of a matrix, used in turn, so that a small one is cold as in a model of many layers.
void GemmOf(benchmark::State& state, int64_t out_features, int64_t in_features) {
  const auto pool = MakePool();
  const GemmShape shape = {
      .num_tokens = state.range(0), .out_features = out_features, .in_features = in_features};
  constexpr int64_t kColdBytes = int64_t{256} << 20;
  const int64_t copies = std::max<int64_t>(1, kColdBytes / (out_features * in_features * 2));
  const PackedLayout layout =
      PackedLayout::Create(shape.storage, copies, {out_features}, in_features).value();
  AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
  FillRandomWeights({.seed = 1,
                     .amplitude = 0.05f,
                     .rows_full = out_features,
                     .cols_full = in_features,
                     .part_row_begin = {0}},
                    layout, data.data(), *pool);
  const std::vector<Bf16> in(static_cast<size_t>(shape.num_tokens * in_features), Bf16{0x3F80});
  std::vector<Bf16> out(static_cast<size_t>(shape.num_tokens * out_features));
  AlignedBuffer workspace =
      AlignedBuffer::Create(static_cast<size_t>(GemmWorkspaceBytes(shape, layout))).value();
  PackedLayout one = layout;
  one.num_matrices = 1;
  int64_t turn = 0;
  for (auto _ : state) {
    const PackedWeights weights = {.layout = &one,
                                   .data = data.data() + turn++ % copies * layout.matrix_bytes};
    Gemm(shape, weights, in, {}, std::span<Bf16>(out), workspace.As<std::byte>(workspace.bytes()),
         *pool);
  }
  Report(state, static_cast<double>(layout.matrix_bytes),
         2.0 * static_cast<double>(shape.num_tokens * out_features * in_features));
}

void GemmLmHead(benchmark::State& state) { GemmOf(state, 75968, 2048); }
void GemmQkv(benchmark::State& state) { GemmOf(state, 2560, 2048); }
void GemmRouter(benchmark::State& state) { GemmOf(state, 128, 2048); }
BENCHMARK(GemmLmHead)
    ->Arg(1)
    ->Arg(8)
    ->Arg(16)
    ->Arg(64)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(GemmQkv)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->UseRealTime()->Unit(
    benchmark::kMicrosecond);
BENCHMARK(GemmRouter)->Arg(1)->Arg(64)->UseRealTime()->Unit(benchmark::kMicrosecond);

void Attend(benchmark::State& state, AttentionShape shape) {
  const auto pool = MakePool();
  shape.num_sequences = state.range(0);
  shape.context = state.range(1);
  const AttentionWidths widths = WidthsOf(shape);
  const auto bytes = static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache));
  AlignedBuffer keys = AlignedBuffer::Create(bytes).value();
  AlignedBuffer values =
      AlignedBuffer::Create(shape.kind == AttentionKind::kGqa ? bytes : 0).value();
  const KvCache cache = {keys.As<std::byte>(keys.bytes()), values.As<std::byte>(values.bytes())};
  FillRandomCache(shape, 1, 2, cache, *pool);
  const int64_t tokens = shape.num_sequences * shape.query_tokens;
  const std::vector<Bf16> query(static_cast<size_t>(tokens * widths.query_stride), Bf16{0x3F00});
  std::vector<Bf16> out(static_cast<size_t>(tokens * shape.num_heads * widths.value));
  AlignedBuffer workspace = AlignedBuffer::Create(static_cast<size_t>(AttentionWorkspaceBytes(
                                                      shape, pool->num_threads())))
                                .value();
  for (auto _ : state) {
    Attention(shape, query, cache, out, workspace.As<std::byte>(workspace.bytes()), *pool);
  }
  const double positions =
      static_cast<double>(shape.context) + 0.5 * static_cast<double>(shape.query_tokens + 1);
  Report(state, static_cast<double>(keys.bytes() + values.bytes()),
         2.0 * static_cast<double>(tokens * shape.num_heads * (widths.key + widths.value)) *
             positions);
}

constexpr AttentionShape kQwen3 = {.kind = AttentionKind::kGqa,
                                   .num_heads = 16,
                                   .num_kv_heads = 2,
                                   .head_dim = 128,
                                   .softmax_scale = 0.0884};
void AttendGqa(benchmark::State& state) { Attend(state, kQwen3); }
void AttendGqaFp8(benchmark::State& state) {
  AttentionShape shape = kQwen3;
  shape.cache = CacheFormat::kFp8;
  Attend(state, shape);
}
void AttendGqaPrompt(benchmark::State& state) {
  AttentionShape shape = kQwen3;
  shape.query_tokens = state.range(2);
  Attend(state, shape);
}
void AttendMla(benchmark::State& state) {
  Attend(state, {.kind = AttentionKind::kMla,
                 .num_heads = 8,
                 .num_kv_heads = 1,
                 .kv_lora_rank = 512,
                 .qk_rope_head_dim = 64,
                 .softmax_scale = 0.07});
}
BENCHMARK(AttendGqa)
    ->Args({1, 4096})
    ->Args({1, 131072})
    ->Args({16, 4096})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(AttendGqaFp8)->Args({16, 4096})->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(AttendGqaPrompt)->Args({1, 0, 1024})->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(AttendMla)
    ->Args({1, 4096})
    ->Args({16, 4096})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Two ranks as threads of this process, each calling so many times.
constexpr int64_t kAllReduceCalls = 300;
void AllReduceTwoRanks(benchmark::State& state) {
  const auto algorithm = static_cast<AllReduceAlgorithm>(state.range(1));
  const std::string path = absl::StrCat("/tmp/lastflop-dense-bench-", getpid());
  const auto join = [&](int rank) {
    return JoinGang(path, rank, 2, std::chrono::milliseconds(10'000)).value();
  };
  const CpuCommunicator::Options options = {.share_cores = std::thread::hardware_concurrency() < 2};
  const auto elements = static_cast<size_t>(state.range(0) / 2);
  std::thread other([&] {
    const auto gang = join(1);
    const auto communicator = CpuCommunicator::Create(*gang, options).value();
    std::vector<uint16_t> data(elements);
    for (int64_t i = 0; i < kAllReduceCalls; ++i) {
      communicator->AllReduce(data, algorithm).status().IgnoreError();
    }
    gang->Barrier().IgnoreError();
  });
  const auto gang = join(0);
  const auto communicator = CpuCommunicator::Create(*gang, options).value();
  std::vector<uint16_t> data(elements);
  for (auto _ : state) {
    communicator->AllReduce(data, algorithm).status().IgnoreError();
  }
  gang->Barrier().IgnoreError();
  other.join();
  state.SetLabel(std::string(ToWord(algorithm)));
  Report(state, static_cast<double>(state.range(0)), 0);
}
BENCHMARK(AllReduceTwoRanks)
    ->ArgsProduct({{4096, 16384, 65536, 262144, 1 << 20, 8 << 20},
                   {static_cast<int64_t>(AllReduceAlgorithm::kOneShot),
                    static_cast<int64_t>(AllReduceAlgorithm::kTwoShot),
                    static_cast<int64_t>(AllReduceAlgorithm::kRing)}})
    ->Iterations(kAllReduceCalls)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lastflop

BENCHMARK_MAIN();
