// moe.kernel: cublaslt: padded rows, and the whole layer against plain kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gpu/cublas_lt.h"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/moe_combine/moe_combine_cuda.h"
#include "kernels/pad_rows/pad_rows_cuda.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "kernels/tolerance.h"
#include "step/padded_experts.h"
#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

PadShape PadOf(const PermuteShape& s, int64_t hidden) {
  return {.num_tokens = s.num_tokens,
          .top_k = s.top_k,
          .num_local_experts = s.num_local_experts,
          .padded_rows = PaddedRows(s.num_tokens),
          .hidden_size = hidden};
}

void ExpectPadded(const PermuteShape& permute, const std::vector<int32_t>& ids, int tile,
                  int64_t hidden) {
  const RoutingCase routing(permute, tile, ids);
  const PadShape shape = PadOf(permute, hidden);
  const std::vector<Bf16> in = RandomBf16(static_cast<size_t>(permute.num_tokens * hidden), 3);
  const DeviceArray<__nv_bfloat16> device_in(in);
  DeviceArray<__nv_bfloat16> out(shape.num_local_experts * shape.padded_rows * hidden);
  LASTFLOP_EXPECT_OK(
      LaunchPadRows(shape, routing.pairs, device_in.get(), out.get(), /*stream=*/nullptr));
  const std::vector<Bf16> got = out.Download<Bf16>();
  const auto offsets = routing.Read(routing.pairs.offsets, shape.num_local_experts + 1);
  const auto token = routing.Read(routing.pairs.token, offsets.back());
  const auto place = routing.Read(routing.pairs.padded_row, offsets.back());
  for (int64_t row = 0; row < shape.num_local_experts * shape.padded_rows; ++row) {
    const auto expert = static_cast<size_t>(row / shape.padded_rows);
    const auto pair = static_cast<size_t>(offsets[expert] + row % shape.padded_rows);
    const bool is_pair = pair < static_cast<size_t>(offsets[expert + 1]);
    if (is_pair) {
      EXPECT_EQ(place[pair], row);
    }
    for (int64_t h = 0; h < hidden; ++h) {
      // What is no pair's stays as it was.
      const Bf16 want = is_pair ? in[static_cast<size_t>(token[pair] * hidden + h)] : Bf16{0xFFFF};
      ASSERT_EQ(got[static_cast<size_t>(row * hidden + h)].bits, want.bits)
          << "row " << row << " feature " << h;
    }
  }
}

TEST(PadRowsCudaTest, PutsEveryPairInItsExpertsRowsAndTouchesNoOther) {
  LASTFLOP_NEED_GPU();
  ExpectPadded(PermuteCase(1, 2, 24, 0, 24), RandomExperts(1, 2, 24, 5), 8, 8);
  ExpectPadded(PermuteCase(37, 3, 24, 5, 11), RandomExperts(37, 3, 24, 6), 8, 1032);
  ExpectPadded(PermuteCase(70, 1, 9, 0, 9), std::vector<int32_t>(70, 4), 32, 136);
}

TEST(PadRowsCudaTest, RefusesFewerRowsThanAnExpertMayNeed) {
  PadShape shape = PadOf(PermuteCase(8, 2, 4, 0, 4), 64);
  EXPECT_TRUE(CheckPadRowsCuda(shape).ok());
  shape.padded_rows = 7;
  EXPECT_EQ(CheckPadRowsCuda(shape).code(), absl::StatusCode::kInvalidArgument);
  shape = PadOf(PermuteCase(8, 2, 4, 0, 4), 60);
  EXPECT_EQ(CheckPadRowsCuda(shape).code(), absl::StatusCode::kInvalidArgument);
  shape = PadOf(PermuteCase(int64_t{1} << 30, 2, 4, 0, 4), 64);
  EXPECT_EQ(CheckPadRowsCuda(shape).code(), absl::StatusCode::kUnimplemented);
}

// A layer of bf16 experts, whose weights are rows.
class PaddedLayer {
 public:
  PaddedLayer(const PermuteShape& permute, const std::vector<int32_t>& ids, int64_t hidden,
              int64_t intermediate)
      : pad_(PadOf(permute, hidden)),
        intermediate_(intermediate),
        routing_(permute, 8, ids),
        gate_up_(
            SliceCase(WeightFormat::kBf16, pad_.num_local_experts, 2 * intermediate, hidden, 2)),
        down_(SliceCase(WeightFormat::kBf16, pad_.num_local_experts, hidden, intermediate, 1)),
        gate_up_rows_(pad_.num_local_experts * 2 * intermediate * hidden),
        down_rows_(pad_.num_local_experts * hidden * intermediate),
        in_(RandomBf16(static_cast<size_t>(permute.num_tokens * hidden), 52)) {
    LASTFLOP_EXPECT_OK(LaunchFillRows(gate_up_, gate_up_rows_.get(), nullptr));
    LASTFLOP_EXPECT_OK(LaunchFillRows(down_, down_rows_.get(), nullptr));
  }

  // By plain kernels; gate_up and act are rounded to bf16.
  std::vector<float> Want() const {
    const auto pairs = static_cast<size_t>(routing_.NumPairs());
    const auto hidden = static_cast<size_t>(pad_.hidden_size);
    const auto width = static_cast<size_t>(intermediate_);
    const std::vector<float> both = Plain(/*is_gate_up=*/true, gate_up_, in_.get());
    std::vector<Bf16> act(static_cast<size_t>(num_slots()) * width);
    for (size_t p = 0; p < pairs; ++p) {
      for (size_t f = 0; f < width; ++f) {
        const float gate = ToFloat(ToBf16(both[2 * p * width + f]));
        const float up = ToFloat(ToBf16(both[(2 * p + 1) * width + f]));
        act[p * width + f] = ToBf16(gate / (1.0f + std::exp(-gate)) * up);
      }
    }
    const DeviceArray<__nv_bfloat16> device_act(act);
    const std::vector<float> rows = Plain(/*is_gate_up=*/false, down_, device_act.get());
    const auto token = routing_.Read(routing_.pairs.token, static_cast<int64_t>(pairs));
    const auto weight = routing_.Read(routing_.pairs.weight, static_cast<int64_t>(pairs));
    std::vector<float> want(static_cast<size_t>(pad_.num_tokens) * hidden);
    for (size_t p = 0; p < pairs; ++p) {
      for (size_t h = 0; h < hidden; ++h) {
        want[static_cast<size_t>(token[p]) * hidden + h] += weight[p] * rows[p * hidden + h];
      }
    }
    return want;
  }

  std::vector<Bf16> Padded(CublasLt& cublas_lt) const {
    const int64_t rows = pad_.num_local_experts * pad_.padded_rows;
    DeviceArray<__nv_bfloat16> padded(rows * pad_.hidden_size);
    DeviceArray<__nv_bfloat16> gate_up(rows * 2 * intermediate_);
    DeviceArray<__nv_bfloat16> act(rows * intermediate_);
    DeviceArray<__nv_bfloat16> down(rows * pad_.hidden_size);
    DeviceArray<__nv_bfloat16> out(pad_.num_tokens * pad_.hidden_size);
    LASTFLOP_EXPECT_OK(LaunchPadRows(pad_, routing_.pairs, in_.get(), padded.get(), nullptr));
    const DenseGemm first = Gemm(2 * intermediate_, pad_.hidden_size);
    LASTFLOP_EXPECT_OK(cublas_lt.Prepare(first));
    LASTFLOP_EXPECT_OK(cublas_lt.Run(first, padded.get(), gate_up_rows_.get(), nullptr,
                                     gate_up.get(), /*stream=*/nullptr));
    LASTFLOP_EXPECT_OK(LaunchSwiglu({.rows = rows,
                                     .intermediate_size = intermediate_,
                                     .rows_are_pairs = true,
                                     .is_padded = true},
                                    &routing_.pairs, gate_up.get(), act.get(), nullptr));
    const DenseGemm second = Gemm(pad_.hidden_size, intermediate_);
    LASTFLOP_EXPECT_OK(cublas_lt.Prepare(second));
    LASTFLOP_EXPECT_OK(cublas_lt.Run(second, act.get(), down_rows_.get(), nullptr, down.get(),
                                     /*stream=*/nullptr));
    LASTFLOP_EXPECT_OK(LaunchMoeCombine({.num_tokens = pad_.num_tokens,
                                         .top_k = pad_.top_k,
                                         .hidden_size = pad_.hidden_size,
                                         .is_padded = true},
                                        routing_.pairs, down.get(), nullptr, out.get(), nullptr));
    return out.Download<Bf16>();
  }

 private:
  int64_t num_slots() const { return pad_.num_tokens * pad_.top_k; }

  DenseGemm Gemm(int64_t out_features, int64_t in_features) const {
    return {.num_tokens = pad_.padded_rows,
            .out_features = out_features,
            .in_features = in_features,
            .in_stride = in_features,
            .out_stride = out_features,
            .batch = pad_.num_local_experts,
            .in_batch_stride = pad_.padded_rows * in_features,
            .weight_batch_stride = out_features * in_features,
            .out_batch_stride = pad_.padded_rows * out_features};
  }

  std::vector<float> Plain(bool is_gate_up, const CudaWeightSlice& weights,
                           const __nv_bfloat16* in) const {
    const ExpertGemmShape shape = {
        .num_tokens = pad_.num_tokens,
        .top_k = pad_.top_k,
        .num_local_experts = pad_.num_local_experts,
        .out_features = is_gate_up ? 2 * intermediate_ : pad_.hidden_size,
        .in_features = is_gate_up ? pad_.hidden_size : intermediate_,
        .gather_tokens = is_gate_up};
    DeviceArray<float> out(num_slots() * shape.out_features);
    LASTFLOP_EXPECT_OK(LaunchGroupedGemmReference(shape, routing_.pairs, weights, in, nullptr,
                                                  shape.out_features, out.get(), nullptr));
    return out.Download();
  }

  PadShape pad_;
  int64_t intermediate_;
  RoutingCase routing_;
  CudaWeightSlice gate_up_;
  CudaWeightSlice down_;
  DeviceArray<__nv_bfloat16> gate_up_rows_;
  DeviceArray<__nv_bfloat16> down_rows_;
  DeviceArray<__nv_bfloat16> in_;
};

TEST(PaddedExpertsCudaTest, GiveTheLayerForAnyRouting) {
  LASTFLOP_NEED_GPU();
  auto cublas_lt = CublasLt::Create();
  if (absl::IsNotFound(cublas_lt.status())) {
    GTEST_SKIP() << cublas_lt.status();
  }
  ASSERT_TRUE(cublas_lt.ok()) << cublas_lt.status();
  struct Case {
    const char* name;
    PermuteShape permute;
    std::vector<int32_t> ids;
    int64_t hidden;
    int64_t intermediate;
  };
  const Case cases[] = {
      {"one token", PermuteCase(1, 2, 24, 0, 24), RandomExperts(1, 2, 24, 5), 256, 128},
      {"experts without tokens", PermuteCase(3, 2, 24, 0, 24), RandomExperts(3, 2, 24, 5), 256,
       128},
      {"all tokens on one expert", PermuteCase(70, 1, 9, 0, 9), std::vector<int32_t>(70, 4), 512,
       64},
      {"sizes no tile divides", PermuteCase(37, 3, 11, 0, 11), RandomExperts(37, 3, 11, 6), 264,
       72},
      {"many tokens", PermuteCase(300, 4, 16, 0, 16), RandomExperts(300, 4, 16, 7), 512, 192}};
  for (const Case& of : cases) {
    const PaddedLayer layer(of.permute, of.ids, of.hidden, of.intermediate);
    EXPECT_LE(RowError(std::span<const Bf16>(layer.Padded(**cublas_lt)), layer.Want(), of.hidden),
              Tolerance(4, of.hidden))
        << of.name;
  }
}

}  // namespace
}  // namespace lastflop
