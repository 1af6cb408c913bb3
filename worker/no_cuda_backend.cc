#include "worker/arm.h"
#include "worker/collective_bencher.h"
#include "worker/device_probe.h"

namespace lastflop {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "this build has no CUDA backend: build with LASTFLOP_CUDA=on where nvcc is");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& /*options*/) {
  return NoCuda();
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the one with CUDA, which takes it over.
absl::StatusOr<Machine> ProbeCudaDevice(int /*device_index*/, Machine /*machine*/) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCudaCollectiveBencher(
    Gang& /*gang*/, int /*device_index*/) {
  return NoCuda();
}

absl::StatusOr<double> ProbeProductTflopPerS(int /*device_index*/) { return NoCuda(); }

absl::StatusOr<std::vector<std::string>> GpusWithoutPeerAccess() { return NoCuda(); }

bool HasCudaBackend() { return false; }

int CudaVersionOfBuild() { return 0; }

}  // namespace lastflop
