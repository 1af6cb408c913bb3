#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/bf16.h"
#include "worker/cpu_check_op.h"
#include "worker/cpu_step.h"

namespace lastflop {

// Up to `most` of [0, count), ascending; the first and the last among them where `most` allows two.
std::vector<int64_t> SampleIndices(int64_t count, int64_t most, uint64_t seed);

// Rows of `size` values at in[rows[i] * stride].
template <typename T>
std::vector<T> GatherRows(std::span<T> in, std::span<const int64_t> rows, int64_t stride,
                          int64_t size) {
  std::vector<std::remove_const_t<T>> out(rows.size() * static_cast<size_t>(size));
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(in.data() + rows[i] * stride, size, out.data() + i * static_cast<size_t>(size));
  }
  return out;
}

// Some pairs of a permutation as a permutation of their own: pair i is the i-th sampled one.
struct CheckedPairs {
  std::vector<int32_t> offsets;
  std::vector<int32_t> token;
  std::vector<float> weight;
  std::vector<int32_t> pair_of;
  PairList list() {
    return {.offsets = offsets, .token = token, .weight = weight, .pair_of = pair_of};
  }
};

// One check of one op; a function per kind of shape. Internal to worker/cpu_check_*.cc.
class CpuOpChecker {
 public:
  CpuOpChecker(CpuStep& step, CpuOp& op, uint64_t seed, const AfterOp& after_op)
      : step_(step), cpu_op_(op), op_(*op.op), seed_(seed), after_op_(after_op) {}

  using Result = absl::StatusOr<OpCheck>;

  // worker/cpu_check_dense.cc
  Result operator()(const EmbeddingShape& s);
  Result operator()(const NormShape& s);
  Result operator()(const GemmShape& s);
  Result operator()(const HeadGemmShape& s);

  // worker/cpu_check_attention.cc
  Result operator()(const RopeShape& s);
  Result operator()(const AttentionShape& s);

  // worker/cpu_check_moe.cc
  Result operator()(const RouterShape& s);
  Result operator()(PermuteShape s);
  Result operator()(const PadShape& s);
  Result operator()(ExpertGemmShape s);
  Result operator()(const ActivationShape& s);
  Result operator()(CombineShape s);
  Result operator()(FusedMoeShape s);
  Result operator()(const DequantShape& s);

  // worker/cpu_check_collectives.cc
  Result operator()(const AllReduceShape& s);
  Result operator()(const AllToAllShape& s);
  Result operator()(const StageTransferShape& s);
  Result operator()(const SampleShape& s);

 private:
  // Multiply-adds that a reference may take: about a millisecond, where it makes its weights anew.
  static constexpr int64_t kReferenceFlop = int64_t{1} << 17;
  static constexpr int64_t kMostRows = 8;

  absl::Status Run();
  // Fills `out` with a pattern that no kernel writes; of a large one the rows that are compared.
  template <typename T>
  void Poison(std::span<T> out, std::span<const int64_t> rows, int64_t row_size);
  // Poison that is left where Poison() put it.
  template <typename T>
  bool HasPoison(std::span<T> out, std::span<const int64_t> rows, int64_t row_size) const;
  template <typename T>
  OpCheck Compare(std::span<T> out, std::span<const int64_t> rows, int64_t row_size,
                  std::span<const int64_t> columns, std::span<const float> reference,
                  double tolerance) const;
  template <typename T>
  Result CheckGemm(const GemmShape& s, std::span<T> out);
  Result CheckRowNorm(const NormShape& s);
  Result CheckPartNorm(const NormShape& s);
  Result CheckRopeGqa(const RopeShape& s);
  Result CheckRopeMla(const RopeShape& s);
  std::vector<int64_t> SampleSequences(const AttentionShape& shape) const;
  OpCheck CompareCache(const AttentionShape& shape, std::span<const int64_t> sequences,
                       const KvCache& reference);
  void PoisonNewPositions(const AttentionShape& shape, std::span<const int64_t> sequences);
  PermuteShape PermuteShapeOf(const FusedMoeShape& s) const;
  Result RunWatchingPlugin(int64_t count);
  CheckedPairs PairsOf(const PairList& pairs, std::span<const int64_t> sampled) const;
  Result CheckDispatch(const AllToAllShape& s);
  Result CheckCombine(const AllToAllShape& s);

  template <typename T>
  std::span<T> In(int64_t count) {
    return step_.As<T>(op_.in, count);
  }
  template <typename T>
  std::span<T> Out(int64_t count) {
    return step_.As<T>(op_.out, count);
  }

  CpuStep& step_;
  CpuOp& cpu_op_;
  const Op& op_;
  const uint64_t seed_;
  const AfterOp& after_op_;
};

}  // namespace lastflop
