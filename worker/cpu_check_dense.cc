#include <utility>

#include "common/status_macros.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/head_gemm/head_gemm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "worker/cpu_op_checker_inl.h"
#include "worker/cpu_run_op.h"

namespace lastflop {

absl::Status CpuOpChecker::Run() {
  LASTFLOP_RETURN_IF_ERROR(step_.run_op != nullptr ? step_.run_op(cpu_op_)
                                                   : RunCpuOp(step_, cpu_op_));
  if (after_op_ != nullptr) {
    const auto found = step_.tensors.find(op_.out);
    after_op_(op_, found == step_.tensors.end()
                       ? std::span<std::byte>{}
                       : std::span(found->second.data(), found->second.bytes()));
  }
  return absl::OkStatus();
}

CpuOpChecker::Result CpuOpChecker::operator()(const EmbeddingShape& s) {
  const std::vector<int64_t> rows = SampleIndices(s.num_tokens, 4 * kMostRows, seed_);
  const auto out = Out<Bf16>(s.num_tokens * s.hidden_size);
  Poison(out, rows, s.hidden_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  EmbeddingShape sampled = s;
  sampled.num_tokens = static_cast<int64_t>(rows.size());
  const auto ids = GatherRows(std::span(step_.token_ids), rows, 1, 1);
  std::vector<float> reference(rows.size() * static_cast<size_t>(s.hidden_size));
  EmbeddingReference(sampled, ids, cpu_op_.weights->rows(), reference);
  return Compare(out, rows, s.hidden_size, {}, reference, /*tolerance=*/0);
}

CpuOpChecker::Result CpuOpChecker::operator()(const NormShape& s) {
  return op_.in == op_.out ? CheckPartNorm(s) : CheckRowNorm(s);
}

CpuOpChecker::Result CpuOpChecker::CheckRowNorm(const NormShape& s) {
  const std::vector<int64_t> rows = SampleIndices(s.rows, kMostRows, seed_);
  const auto in = GatherRows(In<Bf16>(s.rows * s.size), rows, s.size, s.size);
  const auto residual = step_.As<Bf16>(op_.in2, s.rows * s.size);
  std::vector<float> residual_reference;
  for (const Bf16 value : GatherRows(residual, rows, s.size, s.size)) {
    residual_reference.push_back(ToFloat(value));
  }
  const auto out = Out<Bf16>(s.rows * s.size);
  Poison(out, rows, s.size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  NormShape sampled = s;
  sampled.rows = static_cast<int64_t>(rows.size());
  std::vector<float> reference(residual_reference.size());
  RmsNormReference(sampled, in, residual_reference, cpu_op_.weights->rows(), reference);
  OpCheck check = Compare(out, rows, s.size, {}, reference, WorstTolerance(2, s.size));
  OpCheck of_residual =
      Compare(residual, rows, s.size, {}, residual_reference, WorstTolerance(1, 2));
  of_residual.what = "residual";
  check.Add(of_residual);
  return check;
}

CpuOpChecker::Result CpuOpChecker::CheckPartNorm(const NormShape& s) {
  const std::vector<int64_t> rows = SampleIndices(s.rows, kMostRows, seed_);
  const auto out = Out<Bf16>(s.rows * s.stride);
  const auto before = GatherRows(out, rows, s.stride, s.stride);
  LASTFLOP_RETURN_IF_ERROR(Run());
  NormShape sampled = s;
  sampled.rows = static_cast<int64_t>(rows.size());
  std::vector<float> reference(before.size());
  RmsNormPartsReference(sampled, before, cpu_op_.weights->rows(), reference);
  return Compare(out, rows, s.stride, {}, reference, WorstTolerance(2, s.size));
}

CpuOpChecker::Result CpuOpChecker::operator()(const GemmShape& s) {
  const int64_t count = s.num_tokens * s.out_features;
  return s.fp32_out ? CheckGemm(s, Out<float>(count)) : CheckGemm(s, Out<Bf16>(count));
}

template <typename T>
CpuOpChecker::Result CpuOpChecker::CheckGemm(const GemmShape& s, std::span<T> out) {
  const std::vector<int64_t> rows = SampleIndices(s.num_tokens, kMostRows, seed_);
  const auto num_rows = static_cast<int64_t>(rows.size());
  const std::vector<int64_t> features = SampleIndices(
      s.out_features, std::max<int64_t>(16, kReferenceFlop / (num_rows * s.in_features)), seed_);
  Poison(out, rows, s.out_features);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const int64_t stride = s.in_stride > 0 ? s.in_stride : s.in_features;
  const auto in = GatherRows(In<Bf16>(s.in_offset + (s.num_tokens - 1) * stride + s.in_features)
                                 .subspan(static_cast<size_t>(s.in_offset)),
                             rows, stride, s.in_features);
  GemmShape sampled = s;
  sampled.num_tokens = num_rows;
  sampled.in_stride = 0;
  sampled.in_offset = 0;
  std::vector<float> reference(rows.size() * features.size());
  GemmReference(
      sampled,
      [this](int64_t matrix, int64_t row, std::span<float> values) {
        cpu_op_.weights->ReferenceRow(matrix, row, values);
      },
      in, s.bias ? cpu_op_.bias->rows() : std::span<const Bf16>{}, features, reference);
  return Compare(out, rows, s.out_features, features, reference,
                 WorstTolerance(s.fp32_out ? 0 : 1, s.in_features));
}

CpuOpChecker::Result CpuOpChecker::operator()(const HeadGemmShape& s) {
  const std::vector<int64_t> rows = SampleIndices(s.num_tokens, 4, seed_);
  const std::vector<int64_t> heads = SampleIndices(s.num_heads, 2, seed_);
  const int64_t in_row = s.num_heads * s.in_stride;
  const int64_t out_row = s.num_heads * s.out_stride;
  const auto out = Out<Bf16>(s.num_tokens * out_row);
  // What lies between heads is another op's and stays.
  for (int64_t i = 0; i < s.num_tokens * s.num_heads && out.size_bytes() <= kPoisonBytes; ++i) {
    std::fill_n(out.data() + i * s.out_stride, s.out_features, Bf16{0xFFFF});
  }
  LASTFLOP_RETURN_IF_ERROR(Run());
  HeadGemmShape sampled = s;
  sampled.num_tokens = static_cast<int64_t>(rows.size());
  sampled.num_heads = 1;
  OpCheck check;
  for (const int64_t head : heads) {
    const auto in =
        GatherRows(In<Bf16>(s.num_tokens * in_row).subspan(static_cast<size_t>(head * s.in_stride)),
                   rows, in_row, s.in_stride);
    std::vector<float> reference(rows.size() * static_cast<size_t>(s.out_stride));
    HeadGemmReference(
        sampled,
        [&](int64_t /*matrix*/, int64_t row, std::span<float> values) {
          cpu_op_.weights->ReferenceRow(head, row, values);
        },
        in, reference);
    std::vector<Bf16> values = GatherRows(out.subspan(static_cast<size_t>(head * s.out_stride)),
                                          rows, out_row, s.out_features);
    std::vector<float> wanted =
        GatherRows(std::span(reference), SampleIndices(sampled.num_tokens, 4, seed_), s.out_stride,
                   s.out_features);
    check.Add({.error = RowError(std::span<const Bf16>(values), wanted, s.out_features),
               .tolerance = WorstTolerance(1, s.in_features),
               .what = ""});
  }
  return check;
}

}  // namespace lastflop
