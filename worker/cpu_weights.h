#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weights_random.h"
#include "worker/cpu_buffer_store.h"
#include "worker/weight_place.h"

namespace lastflop {

// Weights in memory, shared between arms. Move-only; views hold while it lives and stays.
class CpuWeights {
 public:
  static absl::StatusOr<CpuWeights> Load(const WeightPlace& place, CpuBufferStore& store,
                                         ThreadPool& pool);

  // What the weights are, without memory for them: ReferenceRow() only.
  static absl::StatusOr<CpuWeights> Describe(const WeightPlace& place);

  bool has_memory() const { return buffer_ != nullptr; }
  const PackedLayout& layout() const { return layout_; }
  PackedWeights packed() const { return {.layout = &layout_, .data = buffer_->data()}; }
  // Of the kRows form.
  std::span<const Bf16> rows() const;
  // The weights [cols] of one output feature, from the true values and not from memory.
  void ReferenceRow(int64_t matrix, int64_t row, std::span<float> out) const {
    ReferenceWeightRow(slice_, layout_, matrix, row, out);
  }

 private:
  CpuWeights(WeightSlice slice, PackedLayout layout, CpuBufferStore::Shared buffer)
      : slice_(std::move(slice)), layout_(std::move(layout)), buffer_(std::move(buffer)) {}

  WeightSlice slice_;
  PackedLayout layout_;
  CpuBufferStore::Shared buffer_;
};

}  // namespace lastflop
