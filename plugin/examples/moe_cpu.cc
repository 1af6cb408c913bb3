// An example of a lastflop plugin for CPUs: the experts of a layer in bf16 or int4, in plain C++.
// docs/plugins.md says how it is built and run. It needs lastflop_plugin.h and nothing else.

#include <lastflop_plugin.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

// Output features that a task computes, for all tokens of an expert: a row of weights is unpacked
// once, however many tokens read it.
constexpr int64_t kBlock = 16;

float FromBf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Sums in 16 strands, which a compiler turns into vectors.
float Dot(const float* a, const float* b, int64_t size) {
  float strands[16] = {};
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    for (int64_t j = 0; j < 16; ++j) {
      strands[j] += a[i + j] * b[i + j];
    }
  }
  float sum = 0;
  for (; i < size; ++i) {
    sum += a[i] * b[i];
  }
  for (const float strand : strands) {
    sum += strand;
  }
  return sum;
}

// Where the arrays of a call lie in its workspace.
struct Workspace {
  int32_t* offsets;  // [num_local_experts + 1]: where an expert's pairs begin.
  int32_t* token;    // [pairs]
  float* weight;     // [pairs]
  float* in;         // [tokens, hidden_size]
  float* act;        // [pairs, intermediate_size]
  float* sum;        // [tokens, hidden_size]
  float* rows;       // [threads, 2, the longer of both sizes]
};

int64_t LongerSize(const lastflop_moe_problem& p) {
  return p.hidden_size > p.intermediate_size ? p.hidden_size : p.intermediate_size;
}

// Lays the arrays out from `memory` on and returns how many bytes they take.
int64_t PlaceArrays(const lastflop_moe_problem& p, char* memory, Workspace* work) {
  const int64_t pairs = p.max_tokens * p.top_k;
  int64_t used = 0;
  const auto take = [&](int64_t bytes) {
    char* const begin = memory + used;
    used += (bytes + 63) / 64 * 64;
    return begin;
  };
  work->offsets = reinterpret_cast<int32_t*>(take(4 * (p.num_local_experts + 1)));
  work->token = reinterpret_cast<int32_t*>(take(4 * pairs));
  work->weight = reinterpret_cast<float*>(take(4 * pairs));
  work->in = reinterpret_cast<float*>(take(4 * p.max_tokens * p.hidden_size));
  work->act = reinterpret_cast<float*>(take(4 * pairs * p.intermediate_size));
  work->sum = reinterpret_cast<float*>(take(4 * p.max_tokens * p.hidden_size));
  work->rows = reinterpret_cast<float*>(take(4 * p.num_threads * 2 * LongerSize(p)));
  return used;
}

// One call: what its tasks share.
struct Run {
  const lastflop_moe_problem* problem;
  const lastflop_moe_call* call;
  Workspace work;
};

// The row of a weight [experts, rows, cols] as fp32.
void UnpackRow(const lastflop_moe_problem& p, const void* weights, const void* scales, int64_t row,
               int64_t cols, float* out) {
  if (p.weight_format == LASTFLOP_WEIGHTS_BF16) {
    const uint16_t* const from = static_cast<const uint16_t*>(weights) + row * cols;
    for (int64_t c = 0; c < cols; ++c) {
      out[c] = FromBf16(from[c]);
    }
    return;
  }
  const uint8_t* const from = static_cast<const uint8_t*>(weights) + row * cols / 2;
  const uint16_t* const scale = static_cast<const uint16_t*>(scales) + row * (cols / p.group_size);
  for (int64_t group = 0; group < cols / p.group_size; ++group) {
    const float s = FromBf16(scale[group]);
    for (int64_t c = group * p.group_size; c < (group + 1) * p.group_size; c += 2) {
      out[c] = static_cast<float>((from[c / 2] & 15) - 8) * s;
      out[c + 1] = static_cast<float>((from[c / 2] >> 4) - 8) * s;
    }
  }
}

// Pairs of a token and one of its experts, by expert.
void GroupPairs(Run& run) {
  const lastflop_moe_problem& p = *run.problem;
  const int64_t slots = run.call->num_tokens * p.top_k;
  int32_t pair = 0;
  for (int64_t expert = 0; expert < p.num_local_experts; ++expert) {
    run.work.offsets[expert] = pair;
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (run.call->expert_ids[slot] == p.first_expert + expert) {
        run.work.token[pair] = static_cast<int32_t>(slot / p.top_k);
        run.work.weight[pair] = run.call->expert_weights[slot];
        ++pair;
      }
    }
  }
  run.work.offsets[p.num_local_experts] = pair;
}

// Task i: kBlock rows of gate and of up of one expert, and SwiGLU, for all of its tokens.
void GateUpTask(void* context, int64_t i, int32_t thread) {
  const Run& run = *static_cast<const Run*>(context);
  const lastflop_moe_problem& p = *run.problem;
  const int64_t blocks = (p.intermediate_size + kBlock - 1) / kBlock;
  const int64_t expert = i / blocks;
  const int32_t begin = run.work.offsets[expert];
  const int32_t end = run.work.offsets[expert + 1];
  if (begin == end) {
    return;
  }
  float* const gate = run.work.rows + thread * 2 * LongerSize(p);
  float* const up = gate + LongerSize(p);
  const lastflop_moe_weights& w = *run.call->weights;
  for (int64_t f = i % blocks * kBlock; f < p.intermediate_size && f < (i % blocks + 1) * kBlock;
       ++f) {
    const int64_t row = expert * 2 * p.intermediate_size + f;
    UnpackRow(p, w.gate_up, w.gate_up_scales, row, p.hidden_size, gate);
    UnpackRow(p, w.gate_up, w.gate_up_scales, row + p.intermediate_size, p.hidden_size, up);
    for (int32_t pair = begin; pair < end; ++pair) {
      const float* const in = run.work.in + run.work.token[pair] * p.hidden_size;
      const float g = Dot(in, gate, p.hidden_size);
      run.work.act[pair * p.intermediate_size + f] =
          g / (1 + std::exp(-g)) * Dot(in, up, p.hidden_size);
    }
  }
}

// Task i: kBlock columns of the output, for all experts and tokens.
void DownTask(void* context, int64_t i, int32_t thread) {
  const Run& run = *static_cast<const Run*>(context);
  const lastflop_moe_problem& p = *run.problem;
  float* const down = run.work.rows + thread * 2 * LongerSize(p);
  const lastflop_moe_weights& w = *run.call->weights;
  auto* const out = static_cast<uint16_t*>(run.call->out);
  const auto* const shared = static_cast<const uint16_t*>(run.call->shared);
  for (int64_t h = i * kBlock; h < p.hidden_size && h < (i + 1) * kBlock; ++h) {
    for (int64_t t = 0; t < run.call->num_tokens; ++t) {
      const int64_t at = t * p.hidden_size + h;
      run.work.sum[at] = shared != nullptr ? FromBf16(shared[at]) : 0;
    }
    for (int64_t expert = 0; expert < p.num_local_experts; ++expert) {
      if (run.work.offsets[expert] == run.work.offsets[expert + 1]) {
        continue;
      }
      UnpackRow(p, w.down, w.down_scales, expert * p.hidden_size + h, p.intermediate_size, down);
      for (int32_t pair = run.work.offsets[expert]; pair < run.work.offsets[expert + 1]; ++pair) {
        run.work.sum[run.work.token[pair] * p.hidden_size + h] +=
            run.work.weight[pair] *
            Dot(run.work.act + pair * p.intermediate_size, down, p.intermediate_size);
      }
    }
    for (int64_t t = 0; t < run.call->num_tokens; ++t) {
      out[t * p.hidden_size + h] = ToBf16(run.work.sum[t * p.hidden_size + h]);
    }
  }
}

int32_t Query(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* reason,
              size_t reason_bytes) {
  if (problem->device != LASTFLOP_DEVICE_CPU) {
    std::snprintf(reason, reason_bytes, "moe_cpu runs on CPUs");
    return 1;
  }
  if (problem->weight_format != LASTFLOP_WEIGHTS_BF16 &&
      problem->weight_format != LASTFLOP_WEIGHTS_INT4) {
    std::snprintf(reason, reason_bytes, "moe_cpu reads weights in bf16 and int4, not in format %d",
                  static_cast<int>(problem->weight_format));
    return 1;
  }
  Workspace unused;
  needs->workspace_bytes = PlaceArrays(*problem, nullptr, &unused);
  return 0;
}

int32_t Create(const lastflop_moe_problem* problem, void** state, char* /*reason*/,
               size_t /*reason_bytes*/) {
  *state = new lastflop_moe_problem(*problem);
  return 0;
}

void Destroy(void* state) { delete static_cast<lastflop_moe_problem*>(state); }

int32_t RunLayer(void* state, const lastflop_host* host, const lastflop_moe_call* call,
                 char* /*reason*/, size_t /*reason_bytes*/) {
  Run run{static_cast<const lastflop_moe_problem*>(state), call, {}};
  const lastflop_moe_problem& p = *run.problem;
  PlaceArrays(p, static_cast<char*>(call->workspace), &run.work);
  const auto* const in = static_cast<const uint16_t*>(call->in);
  for (int64_t i = 0; i < call->num_tokens * p.hidden_size; ++i) {
    run.work.in[i] = FromBf16(in[i]);
  }
  GroupPairs(run);
  const int64_t blocks = (p.intermediate_size + kBlock - 1) / kBlock;
  host->parallel_for(host, p.num_local_experts * blocks, &GateUpTask, &run);
  host->parallel_for(host, (p.hidden_size + kBlock - 1) / kBlock, &DownTask, &run);
  return 0;
}

const lastflop_plugin kPlugin = {
    LASTFLOP_PLUGIN_ABI_VERSION, "moe_cpu 1.0", &Query, &Create, &Destroy,
    /*prepare=*/nullptr,         &RunLayer};

}  // namespace

const lastflop_plugin* lastflop_plugin_entry(void) { return &kPlugin; }
