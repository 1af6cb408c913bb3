#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"

// RMSNorm with the residual addition before it, or in place over parts of rows.
//
//   residual[t, i] = in[t, i] (+ residual[t, i] when add_residual), rounded to bf16
//   out[t, i] = residual[t, i] / sqrt(mean over i of residual[t, i]^2 + epsilon) * gain[i]
//
// `in`, `residual` and `out` are [rows, size] bf16; `gain` is [size] bf16.
namespace lastflop {

// InvalidArgument for sizes out of range, and for parts that do not lie in their row.
absl::Status ValidateRmsNorm(const NormShape& shape);

// `residual` is read and written as fp32 values of bf16 numbers.
void RmsNormReference(const NormShape& shape, std::span<const Bf16> in, std::span<float> residual,
                      std::span<const Bf16> gain, std::span<float> out);

void RmsNorm(const NormShape& shape, std::span<const Bf16> in, std::span<Bf16> residual,
             std::span<const Bf16> gain, std::span<Bf16> out, ThreadPool& pool);

// In place, on shape.parts runs of shape.size elements from shape.offset on, of each row of `data`
// ([rows, stride]). The reference writes what lies outside the parts as it is.
void RmsNormPartsReference(const NormShape& shape, std::span<const Bf16> data,
                           std::span<const Bf16> gain, std::span<float> out);

void RmsNormParts(const NormShape& shape, std::span<Bf16> data, std::span<const Bf16> gain,
                  ThreadPool& pool);

}  // namespace lastflop
