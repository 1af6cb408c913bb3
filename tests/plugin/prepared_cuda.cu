// The example for GPUs with weights in a layout of its own: both tensors of a layer in bf16, down
// first, in the memory that it asked for.

#define lastflop_plugin_entry lastflop_plugin_entry_of_example
#include "plugin/examples/moe_cuda.cu"
#undef lastflop_plugin_entry

extern "C" const lastflop_plugin* lastflop_plugin_entry(void);

namespace {

int64_t DownBytes(const lastflop_moe_problem& p) {
  return 2 * p.num_local_experts * p.hidden_size * p.intermediate_size;
}

int32_t QueryPrepared(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* reason,
                      size_t reason_bytes) {
  if (problem->weight_format != LASTFLOP_WEIGHTS_BF16) {
    std::snprintf(reason, reason_bytes, "prepared_cuda reads bf16");
    return 1;
  }
  needs->prepared_bytes = 3 * DownBytes(*problem);
  return Query(problem, needs, reason, reason_bytes);
}

int32_t Prepare(void* state, const lastflop_host* /*host*/, const lastflop_moe_weights* weights,
                void* prepared, void* stream, char* /*reason*/, size_t /*reason_bytes*/) {
  const int64_t down_bytes = DownBytes(*static_cast<const lastflop_moe_problem*>(state));
  const auto copy = [&](char* to, const void* from, int64_t bytes) {
    return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                           static_cast<cudaStream_t>(stream)) == cudaSuccess;
  };
  auto* const to = static_cast<char*>(prepared);
  const bool is_done = copy(to, weights->down, down_bytes) &&
                       copy(to + down_bytes, weights->gate_up, 2 * down_bytes);
  return is_done ? 0 : 1;
}

int32_t RunPrepared(void* state, const lastflop_host* host, const lastflop_moe_call* call,
                    char* reason, size_t reason_bytes) {
  const int64_t down_bytes = DownBytes(*static_cast<const lastflop_moe_problem*>(state));
  if (call->weights != nullptr) {
    std::snprintf(reason, reason_bytes, "prepared weights come without the stored ones");
    return 1;
  }
  const lastflop_moe_weights weights{static_cast<const char*>(call->prepared) + down_bytes,
                                     nullptr,
                                     call->prepared,
                                     nullptr,
                                     1,
                                     1};
  lastflop_moe_call with_weights = *call;
  with_weights.weights = &weights;
  return RunLayer(state, host, &with_weights, reason, reason_bytes);
}

const lastflop_plugin kPrepared = {LASTFLOP_PLUGIN_ABI_VERSION,
                                   "prepared_cuda",
                                   &QueryPrepared,
                                   &Create,
                                   &Destroy,
                                   &Prepare,
                                   &RunPrepared};

}  // namespace

const lastflop_plugin* lastflop_plugin_entry(void) { return &kPrepared; }
