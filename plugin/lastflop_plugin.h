/* The C ABI of a mixture-of-experts kernel that lastflop measures as `moe.kernel: plugin:NAME`.
 *
 * A plugin is a shared library that exports lastflop_plugin_entry(). This header is all that it is
 * compiled against, as C99 or C++. docs/plugins.md has a walk through an example.
 *
 * lastflop owns inputs, outputs and the clock: it compares every output with a reference of its own
 * before and after timing, and times the calls of run() from outside. A plugin reports nothing.
 *
 * What run() computes, for every token t, with the chosen experts e = expert_ids[t, k] that lie in
 * [first_expert, first_expert + num_local_experts) (all others, negative ones too, are another
 * rank's; a token that has none of this rank's may have any values in `in`):
 *
 *   g      = gate_up[e - first_expert] * in[t]                      [2 * intermediate_size]
 *   act[f] = silu(g[f]) * g[intermediate_size + f]                  [intermediate_size]
 *   out[t] = sum over k of expert_weights[t, k] * (down[e - first_expert] * act)  (+ shared[t])
 *
 * Products are accumulated in fp32; act may be rounded to bf16, and out is. All tensors are
 * row-major and contiguous.
 *
 * Functions that return int32_t return 0 for success. Otherwise they write why, as text with its
 * terminating zero, to `reason` (reason_bytes of room). Calls come from one thread at a time.
 *
 * On CUDA the device is current and stays so. Work goes to the stream handed in and to no other,
 * and nobody waits for it there. What cudaGetLastError() says of a launch is returned: lastflop,
 * whose CUDA runtime may be another one than the plugin's, sees errors of kernels that run, not of
 * launches that were refused.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of everything below. lastflop loads plugins of exactly its own version. */
#define LASTFLOP_PLUGIN_ABI_VERSION 1u

enum { LASTFLOP_DEVICE_CPU = 1, LASTFLOP_DEVICE_CUDA = 2 };

/* How weights [num_local_experts, rows, cols] lie in memory, and their scales. Packed weights have
 * two columns a byte, the even one in the lower half. */
enum {
  /* bf16, no scales. */
  LASTFLOP_WEIGHTS_BF16 = 1,
  /* Packed integers stored as value + 8; scales bf16 [num_local_experts, rows, cols / group_size].
   * A weight is value * scale. */
  LASTFLOP_WEIGHTS_INT4 = 2,
  /* e4m3; scales fp32 [num_local_experts, ceil(rows / block_rows), ceil(cols / group_size)]. */
  LASTFLOP_WEIGHTS_FP8_BLOCK = 3,
  /* Packed e2m1; scales e4m3 [num_local_experts, rows, cols / 16], and one fp32 scale a tensor. */
  LASTFLOP_WEIGHTS_NVFP4 = 4,
  /* Packed e2m1; scales as exponents of two with a bias of 127, [.., rows, cols / 32]. */
  LASTFLOP_WEIGHTS_MXFP4 = 5
};

/* What a rank is to compute: one MoE layer of a step. */
typedef struct lastflop_moe_problem {
  int32_t device;             /* LASTFLOP_DEVICE_ */
  int32_t device_index;       /* CUDA: the device that is current. CPU: 0. */
  int32_t compute_capability; /* CUDA: 90 for sm_90. CPU: 0. */
  int32_t num_threads;        /* CPU: threads of lastflop_host.parallel_for. CUDA: 0. */
  int64_t max_tokens;         /* The most tokens that a call has. */
  int64_t top_k;
  int64_t num_experts; /* Of the model. */
  int64_t first_expert;
  int64_t num_local_experts; /* Of this rank. */
  int64_t hidden_size;
  int64_t intermediate_size; /* Of this rank. */
  int32_t weight_format;     /* LASTFLOP_WEIGHTS_ */
  int32_t has_shared;        /* Whether calls have `shared`. */
  int64_t group_size;        /* Columns that share a scale; 0 without scales. */
  int64_t block_rows;        /* Rows that share a scale; 0 without blocks. */
} lastflop_moe_problem;

/* What a plugin needs for a problem. Zeroes before query(). */
typedef struct lastflop_moe_needs {
  /* Of run(); 64-byte (CUDA: 256-byte) aligned, any content, shared by all layers. */
  int64_t workspace_bytes;
  /* Of one layer's weights in the plugin's own layout, which prepare() makes. 0: run() reads the
   * weights as above. */
  int64_t prepared_bytes;
  /* CUDA: whether run() may be captured in a graph: no synchronization, no allocation, no memory of
   * the host that is read when it runs. Where it is 0, plans with a graph are not run. */
  int32_t capturable;
  int32_t reserved;
} lastflop_moe_needs;

/* One layer's weights: gate_up is [num_local_experts, 2 * intermediate_size, hidden_size], the rows
 * of gate first; down is [num_local_experts, hidden_size, intermediate_size]. */
typedef struct lastflop_moe_weights {
  const void* gate_up;
  const void* gate_up_scales; /* NULL without scales. */
  const void* down;
  const void* down_scales;
  float gate_up_tensor_scale; /* nvfp4, else 1. */
  float down_tensor_scale;
} lastflop_moe_weights;

/* Inputs and output of one call. Memory of the host on the CPU, of the device on CUDA; `weights` is
 * a struct of the host everywhere, which is gone after the call, as this one is. */
typedef struct lastflop_moe_call {
  int64_t num_tokens;          /* At most max_tokens. */
  const void* in;              /* bf16 [num_tokens, hidden_size] */
  const int32_t* expert_ids;   /* [num_tokens, top_k] */
  const float* expert_weights; /* [num_tokens, top_k] */
  const void* shared;          /* bf16 [num_tokens, hidden_size]; NULL without has_shared. */
  const lastflop_moe_weights* weights; /* NULL where prepared_bytes > 0. */
  const void* prepared;                /* What prepare() made; NULL where prepared_bytes is 0. */
  void* out;                           /* bf16 [num_tokens, hidden_size]; all of it is written. */
  void* workspace;
  void* stream; /* CUDA: cudaStream_t that the work is enqueued on, without waiting for it. */
} lastflop_moe_call;

/* What lastflop does for a plugin during a call. */
typedef struct lastflop_host {
  /* CPU: calls task(context, i, thread) for every i in [0, num_tasks) on lastflop's own threads,
   * which are pinned to the cores that the rank has, and returns when all are done. A plugin's own
   * threads would compete with them. Not to be called from a task. NULL on CUDA. */
  void (*parallel_for)(const struct lastflop_host* host, int64_t num_tasks,
                       void (*task)(void* context, int64_t index, int32_t thread), void* context);
  void* reserved; /* lastflop's. */
} lastflop_host;

typedef struct lastflop_plugin {
  uint32_t abi_version; /* LASTFLOP_PLUGIN_ABI_VERSION; first in every version. */
  const char* title;    /* Name and version, for reports: "my_moe 1.2". */

  /* Whether the plugin can run the problem, and with what; else the reason. Asked more than once.
   */
  int32_t (*query)(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* reason,
                   size_t reason_bytes);

  /* Optional: what the plugin keeps for a problem, handed to the calls below (else NULL is). */
  int32_t (*create)(const lastflop_moe_problem* problem, void** state, char* reason,
                    size_t reason_bytes);
  void (*destroy)(void* state);

  /* Needed where prepared_bytes > 0: writes one layer's weights in the plugin's own layout. Called
   * once a layer, untimed; `weights` is gone afterwards. */
  int32_t (*prepare)(void* state, const lastflop_host* host, const lastflop_moe_weights* weights,
                     void* prepared, void* stream, char* reason, size_t reason_bytes);

  /* One layer, timed. */
  int32_t (*run)(void* state, const lastflop_host* host, const lastflop_moe_call* call,
                 char* reason, size_t reason_bytes);
} lastflop_plugin;

/* What a plugin exports. The table lives as long as the process. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const lastflop_plugin*
lastflop_plugin_entry(void);

#ifdef __cplusplus
}
#endif
