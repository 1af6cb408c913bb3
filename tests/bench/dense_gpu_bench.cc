// Times the dense CUDA kernels: dense_gpu_bench [attention|small|all [CASE [BATCH]]]
//
// CASE is the start of a case's name: attention cases that begin with it, at BATCH.
//
// A line of JSON a case. Times are the median over replays of a CUDA graph of many launches, per
// launch, gaps between launches included. Attention walks over as many layers as hold four times
// the L2, so that every cache is read from memory; the small kernels find their rows in L2, as in a
// step.
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/random.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cpu/bf16.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/router/router_cuda.h"
#include "kernels/router/router_scores_cuda.h"
#include "kernels/sample/sample_cuda.h"

namespace lastflop {
namespace {

constexpr int kReplays = 15;
constexpr int64_t kColdBytes = int64_t{250} << 20;

void Check(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
}

DeviceBuffer Memory(int64_t bytes) {
  auto buffer = DeviceBuffer::Create(static_cast<size_t>(std::max<int64_t>(bytes, 16)));
  Check(buffer.status());
  return std::move(*buffer);
}

DeviceBuffer RandomBf16(int64_t count) {
  std::vector<Bf16> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToBf16(2 * CounterUniform(1, 2, i) - 1);
  }
  DeviceBuffer buffer = Memory(2 * count);
  cudaMemcpy(buffer.data(), values.data(), 2 * values.size(), cudaMemcpyHostToDevice);
  return buffer;
}

DeviceBuffer RandomFloats(int64_t count, float amplitude) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = amplitude * (2 * CounterUniform(1, 3, i) - 1);
  }
  DeviceBuffer buffer = Memory(4 * count);
  cudaMemcpy(buffer.data(), values.data(), 4 * values.size(), cudaMemcpyHostToDevice);
  return buffer;
}

// Median and quartiles of us a launch.
struct Times {
  double median;
  double low;
  double high;
};

class Bench {
 public:
  Bench(std::string only_case, int64_t only_batch)
      : only_case_(std::move(only_case)), only_batch_(only_batch) {
    auto stream = Stream::Create();
    Check(stream.status());
    stream_ = std::move(*stream);
    cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0);
  }

  // `launch(i)` enqueues launch i of `count` of a graph.
  Times Time(int count, const std::function<absl::Status(int)>& launch) {
    auto graph = Graph::Capture(*stream_, [&]() -> absl::Status {
      for (int i = 0; i < count; ++i) {
        if (absl::Status status = launch(i); !status.ok()) {
          return status;
        }
      }
      return absl::OkStatus();
    });
    Check(graph.status());
    auto begin = Event::Create();
    auto end = Event::Create();
    std::vector<double> us;
    for (int replay = -3; replay < kReplays; ++replay) {
      Check(begin->Record(stream()));
      Check(graph->Launch(*stream_));
      Check(end->Record(stream()));
      Check(stream_->Synchronize());
      if (replay >= 0) {
        us.push_back(*end->MicrosSince(*begin) / count);
      }
    }
    std::sort(us.begin(), us.end());
    return {us[kReplays / 2], us[kReplays / 4], us[kReplays * 3 / 4]};
  }

  cudaStream_t stream() const { return stream_->get(); }
  bool Wants(const std::string& name, int64_t batch) const {
    return name.rfind(only_case_, 0) == 0 && (only_batch_ == 0 || batch == only_batch_);
  }
  int num_sms = 0;

 private:
  const std::string only_case_;
  const int64_t only_batch_;
  std::optional<Stream> stream_;
};

void PrintTimes(const std::string& fields, const Times& times) {
  std::printf("{%s, \"us\": %.2f, \"us_quartiles\": [%.2f, %.2f]}\n", fields.c_str(), times.median,
              times.low, times.high);
  std::fflush(stdout);
}

void TimeAttention(Bench& bench, const std::string& name, const AttentionShape& shape) {
  if (!bench.Wants(name, shape.num_sequences)) {
    return;
  }
  const AttentionWidths widths = WidthsOf(shape);
  const bool is_gqa = shape.kind == AttentionKind::kGqa;
  const int64_t tokens = shape.num_sequences * shape.query_tokens;
  const int64_t part_bytes = CacheElements(shape) * CacheElementBytes(shape.cache);
  const int64_t bytes = is_gqa ? 2 * part_bytes : part_bytes;
  const int layers = static_cast<int>(std::clamp<int64_t>(kColdBytes / bytes + 1, 4, 64));
  std::vector<DeviceBuffer> caches;
  for (int layer = 0; layer < layers; ++layer) {
    caches.push_back(Memory(bytes));
    cudaMemset(caches.back().data(), 0, static_cast<size_t>(bytes));
    const DeviceKvCache cache = {caches.back().data(), caches.back().data() + part_bytes};
    Check(LaunchFillRandomCache(shape, {.num_kv_heads_full = shape.num_kv_heads}, layer, 1, cache,
                                bench.stream()));
  }
  const DeviceBuffer query = RandomBf16(tokens * widths.query_stride);
  const DeviceBuffer out = Memory(2 * tokens * shape.num_heads * widths.value);
  const DeviceBuffer workspace = Memory(AttentionCudaWorkspaceBytes(shape, bench.num_sms));
  const Times times = bench.Time(layers, [&](int layer) {
    std::byte* const keys = caches[static_cast<size_t>(layer)].data();
    return LaunchAttention(shape, bench.num_sms, query.As<__nv_bfloat16>(),
                           {keys, keys + part_bytes}, out.As<__nv_bfloat16>(), workspace.data(),
                           bench.stream());
  });
  PrintTimes(absl::StrFormat("\"kernel\": \"attention\", \"case\": \"%s\", \"cache\": \"%s\", "
                             "\"batch\": %d, \"query_tokens\": %d, \"context\": %d, \"layers\": "
                             "%d, \"cache_bytes\": %d, \"gb_per_s\": %.0f",
                             name, ToWord(shape.cache), shape.num_sequences, shape.query_tokens,
                             shape.context, layers, bytes,
                             static_cast<double>(bytes) / times.median / 1e3),
             times);
}

AttentionShape Mla(int64_t batch, int64_t context, int64_t heads) {
  return {.kind = AttentionKind::kMla,
          .num_sequences = batch,
          .context = context,
          .num_heads = heads,
          .num_kv_heads = 1,
          .kv_lora_rank = 512,
          .qk_rope_head_dim = 64,
          .softmax_scale = 0.07};
}
AttentionShape Gqa(int64_t batch, int64_t context, int64_t heads, int64_t kv_heads, int64_t dim) {
  return {.kind = AttentionKind::kGqa,
          .num_sequences = batch,
          .context = context,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = dim,
          .softmax_scale = 0.09};
}

void TimeAllAttention(Bench& bench) {
  const std::vector<std::pair<int64_t, int64_t>> points = {{1, 4096},  {2, 4096},  {10, 4096},
                                                           {64, 4096}, {256, 512}, {1000, 512}};
  for (const auto& [batch, context] : points) {
    TimeAttention(bench, "kimi tp8: 8 heads", Mla(batch, context, 8));
    TimeAttention(bench, "qwen3-30b: 32 heads, 4 kv heads, 128", Gqa(batch, context, 32, 4, 128));
  }
  for (const auto& [batch, context] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 4096}, {64, 4096}}) {
    TimeAttention(bench, "kimi tp2: 32 heads", Mla(batch, context, 32));
    TimeAttention(bench, "kimi tp1: 64 heads", Mla(batch, context, 64));
    TimeAttention(bench, "gpt-oss: 64 heads, 8 kv heads, 64", Gqa(batch, context, 64, 8, 64));
    AttentionShape shape = Mla(batch, context, 8);
    shape.query_tokens = 4;
    TimeAttention(bench, "kimi tp8: 8 heads", shape);
    shape.query_tokens = 1;
    shape.cache = CacheFormat::kFp8;
    TimeAttention(bench, "kimi tp8: 8 heads", shape);
    shape = Gqa(batch, context, 32, 4, 128);
    shape.cache = CacheFormat::kFp8;
    TimeAttention(bench, "qwen3-30b: 32 heads, 4 kv heads, 128", shape);
  }
  AttentionShape prompt = Gqa(1, 0, 32, 4, 128);
  prompt.query_tokens = 2048;
  TimeAttention(bench, "qwen3-30b prompt", prompt);
  prompt = Mla(1, 0, 8);
  prompt.query_tokens = 2048;
  TimeAttention(bench, "kimi tp8 prompt", prompt);
}

constexpr int kLaunches = 100;

void PrintSmall(const std::string& kernel, const std::string& name, int64_t tokens,
                const Times& times) {
  PrintTimes(
      absl::StrFormat("\"kernel\": \"%s\", \"case\": \"%s\", \"tokens\": %d", kernel, name, tokens),
      times);
}

void TimeNorms(Bench& bench, int64_t tokens) {
  for (const int64_t size : {2048, 7168}) {
    const NormShape shape = {.rows = tokens, .size = size, .stride = size, .add_residual = true};
    const DeviceBuffer in = RandomBf16(tokens * size);
    const DeviceBuffer residual = RandomBf16(tokens * size);
    const DeviceBuffer gain = RandomBf16(size);
    const DeviceBuffer out = Memory(2 * tokens * size);
    PrintSmall(
        "rms_norm", absl::StrCat("residual, ", size), tokens, bench.Time(kLaunches, [&](int /*i*/) {
          return LaunchRmsNorm(shape, in.As<__nv_bfloat16>(), residual.As<__nv_bfloat16>(),
                               gain.As<__nv_bfloat16>(), out.As<__nv_bfloat16>(), bench.stream());
        }));
  }
  const std::vector<NormShape> parts = {
      {.rows = tokens, .size = 128, .stride = 5120, .parts = 32, .offset = 0},
      {.rows = tokens, .size = 1536, .stride = 2112, .parts = 1, .offset = 0},
      {.rows = tokens, .size = 512, .stride = 2112, .parts = 1, .offset = 1536}};
  for (const NormShape& shape : parts) {
    const DeviceBuffer data = RandomBf16(tokens * shape.stride);
    const DeviceBuffer gain = RandomBf16(shape.size);
    PrintSmall("rms_norm", absl::StrCat(shape.parts, " parts of ", shape.size), tokens,
               bench.Time(kLaunches, [&](int /*i*/) {
                 return LaunchRmsNormParts(shape, data.As<__nv_bfloat16>(),
                                           gain.As<__nv_bfloat16>(), bench.stream());
               }));
  }
}

void TimeRopes(Bench& bench, int64_t tokens) {
  RopeShape shape = {.kind = AttentionKind::kMla,
                     .num_sequences = tokens,
                     .context = 512,
                     .num_heads = 8,
                     .num_kv_heads = 1,
                     .rotary_dim = 64,
                     .kv_lora_rank = 512,
                     .qk_nope_head_dim = 128,
                     .qk_rope_head_dim = 64};
  const DeviceBuffer query = RandomBf16(tokens * 8 * 192);
  const DeviceBuffer latents = RandomBf16(tokens * 2112);
  const DeviceBuffer absorbed = RandomBf16(tokens * 8 * 576);
  const DeviceBuffer table = Memory(1024);
  const DeviceBuffer keys = Memory(tokens * 513 * 1152);
  Check(LaunchRopeTable(shape, table.As<float2>(), bench.stream()));
  PrintSmall("rope", "kimi tp8", tokens, bench.Time(kLaunches, [&](int /*i*/) {
    return LaunchRopeMla(shape, table.As<float2>(), query.As<__nv_bfloat16>(),
                         latents.As<__nv_bfloat16>(), 2112, absorbed.As<__nv_bfloat16>(),
                         {keys.data(), nullptr}, bench.stream());
  }));
  shape = {.kind = AttentionKind::kGqa,
           .num_sequences = tokens,
           .context = 512,
           .num_heads = 32,
           .num_kv_heads = 4,
           .head_dim = 128,
           .rotary_dim = 128};
  const DeviceBuffer qkv = RandomBf16(tokens * 40 * 128);
  const DeviceBuffer gqa_keys = Memory(tokens * 513 * 1024);
  const DeviceBuffer gqa_values = Memory(tokens * 513 * 1024);
  Check(LaunchRopeTable(shape, table.As<float2>(), bench.stream()));
  PrintSmall("rope", "qwen3-30b", tokens, bench.Time(kLaunches, [&](int /*i*/) {
    return LaunchRopeGqa(shape, table.As<float2>(), qkv.As<__nv_bfloat16>(),
                         {gqa_keys.data(), gqa_values.data()}, bench.stream());
  }));
}

void TimeRouters(Bench& bench, int64_t tokens) {
  struct Case {
    const char* name;
    RouterShape shape;
  };
  const RouterDims kimi = {.scoring = RouterScoring::kSigmoid,
                           .has_bias = true,
                           .renormalize = true,
                           .scaling_factor = 2.8};
  RouterDims deepseek = kimi;
  deepseek.num_groups = 8;
  deepseek.top_k_groups = 4;
  const std::vector<Case> cases = {
      {"kimi: 384 experts, sigmoid", {tokens, 384, 8, kimi, 0}},
      {"kimi, opportunistic 4", {tokens, 384, 8, kimi, 4}},
      {"qwen3-30b: 128 experts, softmax", {tokens, 128, 8, {.renormalize = true}, 0}},
      {"deepseek-v3: 256 experts, 4 of 8 groups", {tokens, 256, 8, deepseek, 0}}};
  const DeviceBuffer scores = RandomFloats(tokens * 384, 4);
  const DeviceBuffer bias = RandomFloats(384, 0.1F);
  const DeviceBuffer ids = Memory(tokens * 32);
  const DeviceBuffer weights = Memory(tokens * 32);
  const DeviceBuffer workspace = Memory(1 << 20);
  for (const Case& c : cases) {
    PrintSmall("router", c.name, tokens, bench.Time(kLaunches, [&](int /*i*/) {
      return LaunchRouter(c.shape, scores.As<float>(), bias.As<float>(), ids.As<int32_t>(),
                          weights.As<float>(), workspace.data(), bench.stream());
    }));
  }
}

void TimeSample(Bench& bench, int64_t tokens) {
  for (const int64_t vocab : {20480, 151936}) {
    const SampleShape shape = {.num_tokens = tokens, .vocab_rows = vocab};
    const DeviceBuffer logits = RandomFloats(tokens * vocab, 4);
    const DeviceBuffer ids = Memory(4 * tokens);
    const DeviceBuffer workspace = Memory(SampleCudaWorkspaceBytes(shape));
    PrintSmall("sample", absl::StrCat("vocabulary ", vocab), tokens, bench.Time(20, [&](int /*i*/) {
      return LaunchSample(shape, logits.As<float>(), ids.As<int32_t>(), workspace.data(),
                          bench.stream());
    }));
  }
  const EmbeddingShape shape = {.num_tokens = tokens, .hidden_size = 7168, .vocab_rows = 1000};
  const DeviceBuffer table = Memory(1000 * 7168 * 2);
  const DeviceBuffer ids = Memory(4 * tokens);
  cudaMemset(ids.data(), 0, ids.bytes());
  const DeviceBuffer out = Memory(tokens * 7168 * 2);
  PrintSmall("embedding", "7168", tokens, bench.Time(kLaunches, [&](int /*i*/) {
    return LaunchEmbedding(shape, ids.As<int32_t>(), table.As<__nv_bfloat16>(),
                           out.As<__nv_bfloat16>(), bench.stream());
  }));
}

void TimeDraws(Bench& bench) {
  Model model;
  model.num_layers = 60;
  model.num_experts = 384;
  model.top_k = 8;
  model.layer_kinds.assign(60, LayerKind::kMoe);
  std::vector<int> layers(60);
  for (int i = 0; i < 60; ++i) {
    layers[static_cast<size_t>(i)] = i;
  }
  for (const int64_t groups : {1, 8}) {
    model.router.num_groups = groups;
    model.router.top_k_groups = (groups + 1) / 2;
    for (const Distribution distribution : {Distribution::kZipf, Distribution::kBalanced}) {
      Routing routing;
      routing.distribution = distribution;
      const auto plan = MakeRouterScorePlan(model, routing, layers);
      Check(plan.status());
      const DeviceBuffer tables = Memory(static_cast<int64_t>(plan->tables.size()));
      cudaMemcpy(tables.data(), plan->tables.data(), plan->tables.size(), cudaMemcpyHostToDevice);
      const DeviceBuffer scores = Memory(60 * 1000 * 384 * 4);
      PrintSmall(
          "router_scores",
          absl::StrCat("60 layers of 384 experts, ", ToWord(distribution), ", groups ", groups),
          1000, bench.Time(4, [&](int draw) {
            return LaunchRouterScores(*plan, tables.data(), 1000, draw, scores.As<float>(),
                                      bench.stream());
          }));
    }
  }
}

void TimeSmall(Bench& bench) {
  for (const int64_t tokens : {1, 64, 1000}) {
    TimeNorms(bench, tokens);
    TimeRopes(bench, tokens);
    TimeRouters(bench, tokens);
  }
  TimeSample(bench, 1);
  TimeSample(bench, 64);
  TimeDraws(bench);
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  lastflop::Bench bench(argc > 2 ? argv[2] : "", argc > 3 ? std::atoll(argv[3]) : 0);
  if (what == "attention" || what == "all") {
    lastflop::TimeAllAttention(bench);
  }
  if (what == "small" || what == "all") {
    lastflop::TimeSmall(bench);
  }
  return 0;
}
