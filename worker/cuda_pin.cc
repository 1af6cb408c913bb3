#include "worker/cuda_pin.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"

namespace lastflop {
namespace {

constexpr int kPopularityDraws = 8;
constexpr int64_t kFirstPopularityDraw = int64_t{1} << 62;  // No attempt draws it.
constexpr uint64_t kPinStream = 0x70696E;

struct Candidate {
  int moe_index = 0;
  int64_t expert = 0;  // Local.
  double weight = 0;   // Uses, or a random number.
};

// The expert of each layer that the draws use most, with its uses.
absl::StatusOr<std::vector<Candidate>> MostPopular(CudaStep& step, CudaDrawer& drawer) {
  std::vector<std::vector<int64_t>> uses(
      static_cast<size_t>(step.num_moe_layers()),
      std::vector<int64_t>(static_cast<size_t>(step.layout.num_local_experts), 0));
  for (int draw = 0; draw < kPopularityDraws; ++draw) {
    LASTFLOP_RETURN_IF_ERROR(drawer.Draw(kFirstPopularityDraw + draw).status());
    LASTFLOP_ASSIGN_OR_RETURN(const auto experts, drawer.ChosenExperts());
    for (size_t layer = 0; layer < experts.size(); ++layer) {
      for (const int32_t id : experts[layer]) {
        const int64_t local = id - step.layout.first_expert;
        if (id >= 0 && local >= 0 && local < step.layout.num_local_experts) {
          ++uses[layer][static_cast<size_t>(local)];
        }
      }
    }
  }
  std::vector<Candidate> candidates;
  for (size_t layer = 0; layer < uses.size(); ++layer) {
    const auto most = std::max_element(uses[layer].begin(), uses[layer].end());
    candidates.push_back({.moe_index = static_cast<int>(layer),
                          .expert = most - uses[layer].begin(),
                          .weight = static_cast<double>(*most)});
  }
  return candidates;
}

std::vector<Candidate> Random(const CudaStep& step, uint64_t seed) {
  std::vector<Candidate> candidates;
  for (int layer = 0; layer < step.num_moe_layers(); ++layer) {
    const uint64_t random = CounterRandom(seed, kPinStream, static_cast<uint64_t>(layer));
    candidates.push_back({.moe_index = layer,
                          .expert = static_cast<int64_t>(
                              random % static_cast<uint64_t>(step.layout.num_local_experts)),
                          .weight = static_cast<double>(random >> 40U)});
  }
  return candidates;
}

PinnedRange RangeOf(const CudaOp& op, int64_t expert, int64_t num_experts) {
  const CudaBufferStore::Shared& panels = op.copies ? op.copies : op.weights;
  const size_t bytes = panels->bytes() / static_cast<size_t>(num_experts);
  return {.begin = panels->data() + static_cast<size_t>(expert) * bytes, .bytes = bytes};
}

}  // namespace

absl::StatusOr<CudaPin> ChoosePins(CudaStep& step, CudaDrawer& drawer, uint64_t seed) {
  CudaPin pin;
  if (step.num_moe_layers() == 0) {
    return pin;
  }
  int device = 0;
  int persisting_max = 0;
  int window_max = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&persisting_max, cudaDevAttrMaxPersistingL2CacheSize, device),
      "asking for the persisting L2");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&window_max, cudaDevAttrMaxAccessPolicyWindowSize, device),
      "asking for the L2 window");
  pin.limit_bytes = static_cast<size_t>(step.plan.moe.l2_pin->share * persisting_max);
  std::vector<Candidate> candidates;
  if (step.plan.moe.l2_pin->select == PinSelect::kPopularity) {
    LASTFLOP_ASSIGN_OR_RETURN(candidates, MostPopular(step, drawer));
  } else {
    candidates = Random(step, seed);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  std::map<int, std::vector<CudaOp*>> products;  // By moe_index.
  for (CudaOp& op : step.ops) {
    if (std::holds_alternative<ExpertGemmShape>(op.op->shape)) {
      products[op.moe_index].push_back(&op);
    }
  }
  for (const Candidate& candidate : candidates) {
    size_t bytes = 0;
    for (const CudaOp* op : products[candidate.moe_index]) {
      const PinnedRange range = RangeOf(*op, candidate.expert, step.layout.num_local_experts);
      bytes += range.bytes <= static_cast<size_t>(window_max) ? range.bytes : pin.limit_bytes + 1;
    }
    if (pin.pinned_bytes + bytes > pin.limit_bytes) {
      continue;
    }
    for (CudaOp* op : products[candidate.moe_index]) {
      op->pinned = RangeOf(*op, candidate.expert, step.layout.num_local_experts);
    }
    pin.pinned_bytes += bytes;
    ++pin.num_experts;
  }
  if (pin.num_experts == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "moe.l2_pin: not one expert fits into %.1f MB of persisting L2 and a window of %.1f MB",
        static_cast<double>(pin.limit_bytes) * 1e-6, window_max * 1e-6));
  }
  pin.note = absl::StrFormat("%d experts pinned, one a layer, %.1f of %.1f MB", pin.num_experts,
                             static_cast<double>(pin.pinned_bytes) * 1e-6,
                             static_cast<double>(pin.limit_bytes) * 1e-6);
  return pin;
}

absl::Status PersistingL2::Set(size_t limit_bytes) {
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceGetLimit(&before_, cudaLimitPersistingL2CacheSize),
                                "reading the persisting L2 limit");
  is_set_ = true;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, limit_bytes),
                                "setting the persisting L2 limit");
  return CudaStatus(cudaDeviceGetLimit(&effective_bytes_, cudaLimitPersistingL2CacheSize),
                    "reading the persisting L2 limit");
}

absl::Status PersistingL2::Reset() {
  if (!is_set_) {
    return absl::OkStatus();
  }
  is_set_ = false;
  const cudaError_t reset = cudaCtxResetPersistingL2Cache();
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, before_),
                                "restoring the persisting L2 limit");
  return CudaStatus(reset, "giving back persisting lines");
}

PersistingL2::~PersistingL2() { Reset().IgnoreError(); }

}  // namespace lastflop
