// SwiGLU, combine, and the whole layer: grouped kernels and the fused one.
#include <gtest/gtest.h>

#include "kernels/fused_moe/fused_moe_cuda.h"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/moe_combine/moe_combine_cuda.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "kernels/tolerance.h"
#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

TEST(SwigluCudaTest, AgreesWithTheReferenceAndLeavesRowsPastThePairs) {
  LASTFLOP_NEED_GPU();
  const RoutingCase routing(PermuteCase(3, 2, 8, 4, 4), 8, {0, 5, 6, 4, 1, 7});
  const ActivationShape shape = {.rows = 6, .intermediate_size = 72, .rows_are_pairs = true};
  const std::vector<Bf16> in = RandomBf16(6 * 144, 3);
  const DeviceArray<__nv_bfloat16> device_in(in);
  DeviceArray<__nv_bfloat16> out(6 * 72);
  LASTFLOP_EXPECT_OK(LaunchSwiglu(shape, &routing.pairs, device_in.get(), out.get(), nullptr));
  const std::vector<Bf16> got = out.Download<Bf16>();
  std::vector<float> want(6 * 72);
  SwigluReference({.rows = 6, .intermediate_size = 72}, nullptr, in, want);
  ASSERT_EQ(routing.NumPairs(), 4);
  EXPECT_LE(RowError(std::span<const Bf16>(got).first(4 * 72),
                     std::span<const float>(want).first(4 * 72), 72),
            Tolerance(1, 1));
  EXPECT_EQ(got[4 * 72].bits, 0xFFFF);
  LASTFLOP_EXPECT_OK(LaunchSwiglu({.rows = 6, .intermediate_size = 72}, nullptr, device_in.get(),
                                  out.get(), nullptr));
  EXPECT_LE(RowError(std::span<const Bf16>(out.Download<Bf16>()), want, 72), Tolerance(1, 1));
}

TEST(MoeCombineCudaTest, AgreesWithTheReferenceWithAndWithoutSharedExperts) {
  LASTFLOP_NEED_GPU();
  for (const int64_t tokens : {1, 50}) {
    for (const int64_t top_k : {3, 8, 10}) {
      const PermuteShape permute = PermuteCase(tokens, top_k, 24, 6, 12);
      const std::vector<int32_t> ids = RandomExperts(tokens, top_k, 24, 9);
      const RoutingCase routing(permute, 8, ids);
      PairBuffer buffer(permute);
      PermuteReference(permute, ids, routing.host_weights, buffer.list());
      CombineShape shape = {.num_tokens = tokens, .top_k = top_k, .hidden_size = 1032};
      const std::vector<Bf16> in = RandomBf16(static_cast<size_t>(tokens * top_k * 1032), 4);
      const std::vector<Bf16> shared = RandomBf16(static_cast<size_t>(tokens * 1032), 5);
      const DeviceArray<__nv_bfloat16> device_in(in);
      const DeviceArray<__nv_bfloat16> device_shared(shared);
      std::vector<float> want(static_cast<size_t>(tokens * 1032));
      for (const bool add_shared : {false, true}) {
        shape.add_shared = add_shared;
        DeviceArray<__nv_bfloat16> out(tokens * 1032);
        LASTFLOP_EXPECT_OK(LaunchMoeCombine(shape, routing.pairs, device_in.get(),
                                            add_shared ? device_shared.get() : nullptr, out.get(),
                                            nullptr));
        MoeCombineReference(shape, buffer.list(), in,
                            add_shared ? std::span<const Bf16>(shared) : std::span<const Bf16>(),
                            want);
        EXPECT_LE(RowError(std::span<const Bf16>(out.Download<Bf16>()), want, 1032),
                  Tolerance(1, top_k))
            << tokens << " tokens, top " << top_k;
      }
    }
  }
}

// 37,450 tokens x top-8 x 7168 are 2^31 + 58,752 elements. Rows of the tokens that are looked at
// are written to the device, the others' are zero.
TEST(MoeCombineCudaTest, ReadsMoreThan31BitsOfInput) {
  LASTFLOP_NEED_GPU();
  constexpr int64_t kTokens = 37450;
  constexpr int64_t kHidden = 7168;
  constexpr int64_t kTopK = 8;
  if (!HasMemory(int64_t{6} << 30)) {
    GTEST_SKIP() << "needs 6 GB of device memory";
  }
  const PermuteShape permute = PermuteCase(kTokens, kTopK, 384, 0, 384);
  const RoutingCase routing(permute, 32, RandomExperts(kTokens, kTopK, 384, 31));
  const std::vector<int32_t> pair_of = routing.Read(routing.pairs.pair_of, kTokens * kTopK);
  DeviceArray<__nv_bfloat16> in(kTokens * kTopK * kHidden);
  LASTFLOP_EXPECT_CUDA_OK(
      cudaMemset(in.get(), 0, static_cast<size_t>(kTokens * kTopK * kHidden) * sizeof(Bf16)));
  // The token of the last pair has its row past 31 bits.
  const int64_t last = routing.Read(routing.pairs.token, kTokens * kTopK).back();
  const std::vector<int64_t> sampled = {0, 1, 18'725, last, kTokens - 1};
  const std::vector<Bf16> rows =
      RandomBf16(sampled.size() * static_cast<size_t>(kTopK * kHidden), 4);
  for (size_t i = 0; i < sampled.size(); ++i) {
    for (int64_t k = 0; k < kTopK; ++k) {
      const int64_t at = int64_t{pair_of[static_cast<size_t>(sampled[i] * kTopK + k)]} * kHidden;
      LASTFLOP_EXPECT_CUDA_OK(
          cudaMemcpy(in.get() + at, rows.data() + (static_cast<int64_t>(i) * kTopK + k) * kHidden,
                     kHidden * sizeof(Bf16), cudaMemcpyHostToDevice));
    }
  }
  DeviceArray<__nv_bfloat16> out(kTokens * kHidden);
  LASTFLOP_EXPECT_OK(
      LaunchMoeCombine({.num_tokens = kTokens, .top_k = kTopK, .hidden_size = kHidden},
                       routing.pairs, in.get(), nullptr, out.get(), nullptr));
  for (size_t i = 0; i < sampled.size(); ++i) {
    std::vector<float> want(kHidden, 0.0f);
    for (int64_t k = 0; k < kTopK; ++k) {
      const float weight = routing.host_weights[static_cast<size_t>(sampled[i] * kTopK + k)];
      for (int64_t h = 0; h < kHidden; ++h) {
        want[static_cast<size_t>(h)] +=
            weight *
            ToFloat(rows[static_cast<size_t>((static_cast<int64_t>(i) * kTopK + k) * kHidden + h)]);
      }
    }
    std::vector<Bf16> got(kHidden);
    LASTFLOP_EXPECT_CUDA_OK(cudaDeviceSynchronize());
    LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(got.data(), out.get() + sampled[i] * kHidden,
                                       kHidden * sizeof(Bf16), cudaMemcpyDeviceToHost));
    EXPECT_LE(RowError(std::span<const Bf16>(got), want, kHidden), Tolerance(1, kTopK))
        << "token " << sampled[i];
  }
}

TEST(SwigluCudaTest, ReadsMoreThan31BitsOfInput) {
  LASTFLOP_NEED_GPU();
  constexpr int64_t kRows = 37450 * 8;
  constexpr int64_t kIntermediate = 3584;
  if (!HasMemory(int64_t{8} << 30)) {
    GTEST_SKIP() << "needs 8 GB of device memory";
  }
  DeviceArray<__nv_bfloat16> in(kRows * 2 * kIntermediate);
  DeviceArray<__nv_bfloat16> out(kRows * kIntermediate);
  const std::vector<Bf16> last = RandomBf16(2 * kIntermediate, 6);
  LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(in.get() + (kRows - 1) * 2 * kIntermediate, last.data(),
                                     last.size() * sizeof(Bf16), cudaMemcpyHostToDevice));
  LASTFLOP_EXPECT_OK(LaunchSwiglu({.rows = kRows, .intermediate_size = kIntermediate}, nullptr,
                                  in.get(), out.get(), nullptr));
  std::vector<Bf16> got(kIntermediate);
  LASTFLOP_EXPECT_CUDA_OK(cudaDeviceSynchronize());
  LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(got.data(), out.get() + (kRows - 1) * kIntermediate,
                                     got.size() * sizeof(Bf16), cudaMemcpyDeviceToHost));
  std::vector<float> want(kIntermediate);
  SwigluReference({.rows = 1, .intermediate_size = kIntermediate}, nullptr, last, want);
  EXPECT_LE(RowError(std::span<const Bf16>(got), want, kIntermediate), Tolerance(1, 1));
}

// A layer of int4 weights on the device, and what it should give.
class LayerCase {
 public:
  LayerCase(int64_t tokens, int64_t local, int64_t hidden = 512, int tile = 8)
      : shape_{.num_tokens = tokens,
               .top_k = 4,
               .num_local_experts = local,
               .hidden_size = hidden,
               .moe_intermediate_size = 192,
               .storage = StorageOf(WeightFormat::kInt4G32)},
        routing_(PermuteCase(tokens, 4, 16, 4, local), tile, RandomExperts(tokens, 4, 16, 51)),
        gate_up_(SliceCase(WeightFormat::kInt4G32, local, 384, hidden, 2)),
        down_(SliceCase(WeightFormat::kInt4G32, local, hidden, 192, 1)),
        gate_up_panels_(PanelBytes(gate_up_)),
        down_panels_(PanelBytes(down_)),
        in_(RandomBf16(static_cast<size_t>(tokens * hidden), 52)) {
    LASTFLOP_EXPECT_OK(
        LaunchFillPanels(gate_up_, CudaRowOrder::kGateAndUp, gate_up_panels_.get(), nullptr));
    LASTFLOP_EXPECT_OK(LaunchFillPanels(down_, CudaRowOrder::kPlain, down_panels_.get(), nullptr));
  }

  ExpertGemmShape Gemm(bool is_gate_up, bool swiglu = false) const {
    return {.num_tokens = shape_.num_tokens,
            .top_k = shape_.top_k,
            .num_local_experts = shape_.num_local_experts,
            .out_features = is_gate_up ? 384 : shape_.hidden_size,
            .in_features = is_gate_up ? shape_.hidden_size : 192,
            .gather_tokens = is_gate_up,
            .swiglu = swiglu,
            .storage = shape_.storage};
  }

  // By plain kernels; act is rounded to bf16.
  std::vector<float> Want() const {
    const int64_t slots = shape_.num_tokens * shape_.top_k;
    const auto pairs = static_cast<size_t>(routing_.NumPairs());
    DeviceArray<float> gate_up(slots * 384);
    LASTFLOP_EXPECT_OK(LaunchGroupedGemmReference(Gemm(true), routing_.pairs, gate_up_, in_.get(),
                                                  nullptr, 384, gate_up.get(), nullptr));
    const std::vector<float> both = gate_up.Download();
    std::vector<Bf16> act(static_cast<size_t>(slots) * 192);
    for (size_t p = 0; p < pairs; ++p) {
      for (size_t f = 0; f < 192; ++f) {
        const float gate = both[p * 384 + f];
        act[p * 192 + f] = ToBf16(gate / (1.0f + std::exp(-gate)) * both[p * 384 + 192 + f]);
      }
    }
    const DeviceArray<__nv_bfloat16> device_act(act);
    DeviceArray<float> down(slots * shape_.hidden_size);
    LASTFLOP_EXPECT_OK(LaunchGroupedGemmReference(Gemm(false), routing_.pairs, down_,
                                                  device_act.get(), nullptr, shape_.hidden_size,
                                                  down.get(), nullptr));
    const std::vector<float> rows = down.Download();
    const auto token = routing_.Read(routing_.pairs.token, static_cast<int64_t>(pairs));
    const auto weight = routing_.Read(routing_.pairs.weight, static_cast<int64_t>(pairs));
    std::vector<float> want(static_cast<size_t>(shape_.num_tokens * shape_.hidden_size));
    const auto hidden = static_cast<size_t>(shape_.hidden_size);
    for (size_t p = 0; p < pairs; ++p) {
      for (size_t h = 0; h < hidden; ++h) {
        want[static_cast<size_t>(token[p]) * hidden + h] += weight[p] * rows[p * hidden + h];
      }
    }
    return want;
  }

  // `swiglu_in_gemm`: as gate_up's last step instead of a kernel of its own.
  std::vector<Bf16> Grouped(bool swiglu_in_gemm) const {
    const int64_t slots = shape_.num_tokens * shape_.top_k;
    DeviceArray<__nv_bfloat16> gate_up(slots * 384);
    DeviceArray<__nv_bfloat16> act(slots * 192);
    DeviceArray<__nv_bfloat16> down(slots * shape_.hidden_size);
    DeviceArray<__nv_bfloat16> out(shape_.num_tokens * shape_.hidden_size);
    LASTFLOP_EXPECT_OK(LaunchGroupedGemm(Gemm(true, swiglu_in_gemm), routing_.pairs,
                                         gate_up_panels_.get(), in_.get(),
                                         swiglu_in_gemm ? act.get() : gate_up.get(),
                                         {.row_order = CudaRowOrder::kGateAndUp}, nullptr));
    if (!swiglu_in_gemm) {
      LASTFLOP_EXPECT_OK(
          LaunchSwiglu({.rows = slots, .intermediate_size = 192, .rows_are_pairs = true},
                       &routing_.pairs, gate_up.get(), act.get(), nullptr));
    }
    LASTFLOP_EXPECT_OK(LaunchGroupedGemm(Gemm(false), routing_.pairs, down_panels_.get(), act.get(),
                                         down.get(), {.early_weights = true}, nullptr));
    LASTFLOP_EXPECT_OK(LaunchMoeCombine(
        {.num_tokens = shape_.num_tokens, .top_k = shape_.top_k, .hidden_size = shape_.hidden_size},
        routing_.pairs, down.get(), nullptr, out.get(), nullptr));
    return out.Download<Bf16>();
  }

  std::vector<Bf16> Fused() const {
    DeviceArray<unsigned char> workspace(FusedMoeCudaWorkspaceBytes(shape_));
    LASTFLOP_EXPECT_CUDA_OK(cudaMemset(workspace.get(), 0, 256));
    DeviceArray<__nv_bfloat16> out(shape_.num_tokens * shape_.hidden_size);
    FusedMoeTensors tensors;
    tensors.gate_up = gate_up_panels_.get();
    tensors.down = down_panels_.get();
    tensors.in = in_.get();
    tensors.expert_ids = routing_.expert_ids.get();
    tensors.expert_weights = routing_.weights.get();
    tensors.out = out.get();
    tensors.workspace = workspace.get();
    tensors.first_expert = 4;
    // Twice with one workspace: the grid's counter goes on from where it was.
    LASTFLOP_EXPECT_OK(LaunchFusedMoeCuda(shape_, tensors, {}, nullptr));
    LASTFLOP_EXPECT_CUDA_OK(cudaMemset(out.get(), 0xFF, out.bytes()));
    LASTFLOP_EXPECT_OK(LaunchFusedMoeCuda(shape_, tensors, {}, nullptr));
    return out.Download<Bf16>();
  }

  const FusedMoeShape& shape() const { return shape_; }

 private:
  FusedMoeShape shape_;
  RoutingCase routing_;
  CudaWeightSlice gate_up_;
  CudaWeightSlice down_;
  DeviceArray<unsigned char> gate_up_panels_;
  DeviceArray<unsigned char> down_panels_;
  DeviceArray<__nv_bfloat16> in_;
};

TEST(MoeLayerCudaTest, GroupedKernelsGiveTheLayer) {
  LASTFLOP_NEED_GPU();
  for (const int64_t hidden : {512, 1536}) {  // Short and long rows of weights.
    for (const int tile : {8, 32}) {
      for (const int64_t tokens : {1, 40}) {
        const LayerCase layer(tokens, 12, hidden, tile);
        for (const bool swiglu_in_gemm : {false, true}) {
          EXPECT_LE(
              RowError(std::span<const Bf16>(layer.Grouped(swiglu_in_gemm)), layer.Want(), hidden),
              Tolerance(4, hidden));
        }
      }
    }
  }
}

TEST(MoeLayerCudaTest, FusedKernelGivesTheLayerOrSaysWhyNot) {
  LASTFLOP_NEED_GPU();
  for (const int64_t tokens : {1, 8, 40}) {
    const LayerCase layer(tokens, 12);
    const absl::Status checked = CheckFusedMoeCuda(layer.shape(), {});
    if (!checked.ok()) {
      EXPECT_EQ(checked.code(), absl::StatusCode::kUnimplemented) << checked.ToString();
      continue;
    }
    EXPECT_LE(RowError(std::span<const Bf16>(layer.Fused()), layer.Want(), 512), Tolerance(2, 512));
  }
}

TEST(MoeLayerCudaTest, FusedKernelRefusesWhatItHasNotGot) {
  LASTFLOP_NEED_GPU();
  FusedMoeShape shape = {.num_tokens = 1,
                         .top_k = 2,
                         .num_local_experts = 4,
                         .hidden_size = 128,
                         .moe_intermediate_size = 64,
                         .storage = StorageOf(WeightFormat::kBf16)};
  EXPECT_EQ(CheckFusedMoeCuda(shape, {}).code(), absl::StatusCode::kUnimplemented);
  shape.storage = StorageOf(WeightFormat::kInt4G32);
  shape.tile_order = TileOrder::kColumnMajor;
  EXPECT_EQ(CheckFusedMoeCuda(shape, {}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lastflop
