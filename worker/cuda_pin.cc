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
#include "worker/l2_window.h"

namespace lastflop {
namespace {

constexpr int kPopularityDraws = 8;
constexpr int64_t kFirstPopularityDraw = int64_t{1} << 62;  // No attempt draws it.
constexpr uint64_t kPinStream = 0x70696E;

struct PinCandidate {
  int moe_index = 0;
  int64_t expert = 0;  // Local.
  double weight = 0;   // Uses, or a random number.
};

// The expert of each layer that the draws use most, with its uses.
absl::StatusOr<std::vector<PinCandidate>> MostPopular(CudaStep& step, CudaDrawer& drawer) {
  std::vector<std::vector<int64_t>> uses(
      static_cast<size_t>(step.num_moe_layers()),
      std::vector<int64_t>(static_cast<size_t>(step.layout.num_local_experts), 0));
  for (int draw = 0; draw < kPopularityDraws; ++draw) {
    LASTFLOP_RETURN_IF_ERROR(drawer.Draw(kFirstPopularityDraw + draw).status());
    LASTFLOP_ASSIGN_OR_RETURN(const auto experts, drawer.ExpertsOfAllTokens());
    for (size_t layer = 0; layer < experts.size(); ++layer) {
      for (const int32_t id : experts[layer]) {
        const int64_t local = id - step.layout.first_expert;
        if (id >= 0 && local >= 0 && local < step.layout.num_local_experts) {
          ++uses[layer][static_cast<size_t>(local)];
        }
      }
    }
  }
  std::vector<PinCandidate> candidates;
  for (size_t layer = 0; layer < uses.size(); ++layer) {
    const auto most = std::max_element(uses[layer].begin(), uses[layer].end());
    candidates.push_back({.moe_index = static_cast<int>(layer),
                          .expert = most - uses[layer].begin(),
                          .weight = static_cast<double>(*most)});
  }
  return candidates;
}

std::vector<PinCandidate> Random(const CudaStep& step, uint64_t seed) {
  std::vector<PinCandidate> candidates;
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

// What the device allows a pin that asks for `share` of its persisting L2.
struct Limits {
  size_t set_aside_bytes = 0;
  size_t max_window_bytes = 0;
};

absl::StatusOr<Limits> LimitsOfDevice(double share) {
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
  if (persisting_max <= 0 || window_max <= 0) {
    return absl::UnimplementedError(absl::StrFormat(
        "moe.l2_pin=share %g: the device keeps no part of its L2 apart (MIG, or older than sm_80)",
        share));
  }
  return Limits{.set_aside_bytes = static_cast<size_t>(share * persisting_max),
                .max_window_bytes = static_cast<size_t>(window_max)};
}

// Pins an expert in all products of its layer if it fits beside what is pinned.
bool PinWhole(const std::vector<CudaOp*>& products, int64_t expert, int64_t num_experts,
              size_t max_window_bytes, CudaPin& pin) {
  size_t bytes = 0;
  for (const CudaOp* op : products) {
    const PinnedRange range = RangeOf(*op, expert, num_experts);
    if (range.bytes > max_window_bytes) {
      return false;
    }
    bytes += range.bytes;
  }
  if (pin.pinned_bytes + bytes > pin.limit_bytes) {
    return false;
  }
  for (CudaOp* op : products) {
    op->pinned = RangeOf(*op, expert, num_experts);
  }
  pin.pinned_bytes += bytes;
  ++pin.num_experts;
  return true;
}

// Pins what fits of one expert that does not: windows as large as they can be, and the share of
// their lines that the set-aside holds, all together.
void PinPart(const std::vector<CudaOp*>& products, int64_t expert, int64_t num_experts,
             size_t max_window_bytes, CudaPin& pin) {
  size_t asked_bytes = 0;
  size_t window_bytes = 0;
  for (CudaOp* op : products) {
    op->pinned = RangeOf(*op, expert, num_experts);
    asked_bytes += op->pinned.bytes;
    op->pinned.bytes = ClampL2Window(op->pinned.bytes, max_window_bytes, pin.limit_bytes).bytes;
    window_bytes += op->pinned.bytes;
  }
  const double hit_ratio = ClampL2Window(window_bytes, window_bytes, pin.limit_bytes).hit_ratio;
  for (CudaOp* op : products) {
    op->pinned.hit_ratio = static_cast<float>(hit_ratio);
  }
  pin.num_experts = 1;
  pin.pinned_bytes = window_bytes;
  pin.note = absl::StrFormat(
      "part of 1 expert pinned: windows of %.2f MB (asked for %.2f) on %d kernels, set-aside %.2f "
      "MB, hit ratio %.3f",
      static_cast<double>(window_bytes) * 1e-6, static_cast<double>(asked_bytes) * 1e-6,
      products.size(), static_cast<double>(pin.limit_bytes) * 1e-6, hit_ratio);
}

}  // namespace

absl::StatusOr<CudaPin> ChoosePins(CudaStep& step, CudaDrawer& drawer, uint64_t seed) {
  CudaPin pin;
  if (step.num_moe_layers() == 0) {
    return pin;
  }
  LASTFLOP_ASSIGN_OR_RETURN(const Limits limits, LimitsOfDevice(step.plan.moe.l2_pin->share));
  pin.limit_bytes = limits.set_aside_bytes;
  std::vector<PinCandidate> candidates;
  if (step.plan.moe.l2_pin->select == PinSelect::kPopularity) {
    LASTFLOP_ASSIGN_OR_RETURN(candidates, MostPopular(step, drawer));
  } else {
    candidates = Random(step, seed);
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const PinCandidate& a, const PinCandidate& b) { return a.weight > b.weight; });
  std::map<int, std::vector<CudaOp*>> products;  // By moe_index.
  for (CudaOp& op : step.ops) {
    if (std::holds_alternative<ExpertGemmShape>(op.op->shape)) {
      products[op.moe_index].push_back(&op);
    }
  }
  const int64_t num_experts = step.layout.num_local_experts;
  size_t num_windows = 0;
  for (const PinCandidate& candidate : candidates) {
    const std::vector<CudaOp*>& of_layer = products[candidate.moe_index];
    if (PinWhole(of_layer, candidate.expert, num_experts, limits.max_window_bytes, pin)) {
      num_windows += of_layer.size();
    }
  }
  if (pin.num_experts == 0) {
    const PinCandidate& best = candidates.front();
    PinPart(products[best.moe_index], best.expert, num_experts, limits.max_window_bytes, pin);
    return pin;
  }
  pin.note = absl::StrFormat(
      "%d experts pinned, one a layer, %.1f of %.1f MB, hit ratio 1, windows on %d kernels",
      pin.num_experts, static_cast<double>(pin.pinned_bytes) * 1e-6,
      static_cast<double>(pin.limit_bytes) * 1e-6, num_windows);
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
