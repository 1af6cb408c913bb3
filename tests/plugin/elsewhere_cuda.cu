// The example for GPUs, on another stream than the one that it is given: right values, which the
// step does not wait for and no clock of its stream sees.

#define lastflop_plugin_entry lastflop_plugin_entry_of_example
#include "plugin/examples/moe_cuda.cu"
#undef lastflop_plugin_entry

extern "C" const lastflop_plugin* lastflop_plugin_entry(void);

namespace {

int32_t RunElsewhere(void* state, const lastflop_host* host, const lastflop_moe_call* call,
                     char* reason, size_t reason_bytes) {
  lastflop_moe_call elsewhere = *call;
  elsewhere.stream = nullptr;
  return RunLayer(state, host, &elsewhere, reason, reason_bytes);
}

const lastflop_plugin kElsewhere = {LASTFLOP_PLUGIN_ABI_VERSION,
                                    "elsewhere_cuda",
                                    &Query,
                                    &Create,
                                    &Destroy,
                                    nullptr,
                                    &RunElsewhere};

}  // namespace

const lastflop_plugin* lastflop_plugin_entry(void) { return &kElsewhere; }
