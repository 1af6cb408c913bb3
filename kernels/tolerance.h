#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/bf16.h"

// How far from its plain reference a kernel's result may be.
//
// The measure is per row: ||out - ref|| / ||ref||, the largest over rows. One wrong row, or one
// wrong element of a row, then cannot hide behind many right ones. A row whose reference nearly
// cancels is measured against a hundredth of the rms row norm instead.
//
// The limit has a part for each rounding to bf16 on the way from common inputs to the output
// (half a unit in the last place, 2^-8, each) and one for summing K products in another order:
// 2^-24 sqrt(K), times 4 for the tail. int4 kernels multiply activations in 16-bit blocks
// (kernels/cpu/panel_gemm.h): 2^-16 of a group's largest value, which the first part covers.
namespace lastflop {

// `num_roundings`: roundings to bf16 (an fp32 output has 0); `k`: the longest sum.
double Tolerance(int num_roundings, int64_t k);

// Largest relative row error of `out` against `reference`, both [rows, row_size]; infinity when a
// value of `out` is not finite or where a non-zero stands for an all-zero reference.
double RowError(std::span<const float> out, std::span<const float> reference, int64_t row_size);
double RowError(std::span<const Bf16> out, std::span<const float> reference, int64_t row_size);

// RowError() of a few columns of each row, whose norm is no row's norm: among eight products of a
// SwiGLU there may be one of a large and a vanishing factor and nothing else, and the error of a
// rounding goes with the large one. Each row is measured against the rms norm at least.
double SampledRowError(std::span<const float> out, std::span<const float> reference,
                       int64_t num_columns);

}  // namespace lastflop
