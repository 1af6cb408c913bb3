// Plugins for GPUs that do what a plugin must not, one a build: FAULT says what.

#include <cuda_runtime.h>
#include <lastflop_plugin.h>

#include <cstdint>
#include <cstdio>

namespace {

enum Fault {
  kWrong = 1,  // Zeros.
  kAsync,      // A kernel writes where nothing is.
  kLaunch,     // A launch that CUDA refuses, and that the plugin does not report.
  kWaits,      // Says that it can be captured, and waits for the stream.
  kNoGraph,    // Says that it cannot be captured; its output is zeros.
  kOverrun,    // Writes past the end of its output,
  kOverwork,   // of its workspace,
  kScribble,   // and to its input.
  kGreedy,     // Asks for more memory than there is.
  kCrash,      // Of the host.
  kHang        // A kernel takes 20 s.
};

constexpr int64_t kWorkspaceBytes = 256;
lastflop_moe_problem kept;

__global__ void Write(char* to) { *to = 1; }

__device__ uint64_t NanosecondsNow() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));  // PTX ISA: special registers.
  return now;
}

__global__ void Spin() {
  const uint64_t end = NanosecondsNow() + 20'000'000'000;
  while (NanosecondsNow() < end) {
  }
}

int32_t Query(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* /*reason*/,
              size_t /*reason_bytes*/) {
  kept = *problem;
  needs->workspace_bytes = FAULT == kGreedy ? int64_t{1} << 60 : kWorkspaceBytes;
  needs->capturable = FAULT == kNoGraph ? 0 : 1;
  return 0;
}

int32_t Run(void* /*state*/, const lastflop_host* /*host*/, const lastflop_moe_call* call,
            char* reason, size_t reason_bytes) {
  auto* const stream = static_cast<cudaStream_t>(call->stream);
  auto* const out = static_cast<char*>(call->out);
  const auto out_bytes = static_cast<size_t>(call->num_tokens * kept.hidden_size) * 2;
  if (FAULT == kCrash) {
    *reinterpret_cast<volatile int*>(call->num_tokens) = 1;  // No memory is there.
  }
  if (FAULT == kLaunch) {
    Write<<<1, 4096, 0, stream>>>(out);
    return 0;
  }
  if (cudaMemsetAsync(out, 0, out_bytes, stream) != cudaSuccess) {
    std::snprintf(reason, reason_bytes, "no memset");
    return 1;
  }
  switch (FAULT) {
    case kAsync:
      Write<<<1, 1, 0, stream>>>(reinterpret_cast<char*>(uintptr_t{1} << 46));
      break;
    case kHang:
      Spin<<<1, 1, 0, stream>>>();
      break;
    case kWaits:
      cudaStreamSynchronize(stream);
      break;
    case kOverrun:
      Write<<<1, 1, 0, stream>>>(out + out_bytes);
      break;
    case kOverwork:
      Write<<<1, 1, 0, stream>>>(static_cast<char*>(call->workspace) + kWorkspaceBytes);
      break;
    case kScribble:
      Write<<<1, 1, 0, stream>>>(static_cast<char*>(const_cast<void*>(call->in)));
      break;
    default:
      break;
  }
  return 0;
}

const lastflop_plugin kPlugin = {
    LASTFLOP_PLUGIN_ABI_VERSION, "faulty", &Query, nullptr, nullptr, nullptr, &Run};

}  // namespace

const lastflop_plugin* lastflop_plugin_entry(void) { return &kPlugin; }
