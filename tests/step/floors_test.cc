#include "step/floors.h"

#include "gtest/gtest.h"

namespace lastflop {
namespace {

Op GemmOp(double flop, double weight_bytes) {
  Op op;
  op.shape = GemmShape{};
  op.work.flop = flop;
  op.work.weight_bytes = weight_bytes;
  return op;
}

TEST(FloorsTest, IsTheLongerOfReadingAndComputing) {
  Machine machine;
  machine.cold_read = {{.bytes = 1e6, .us = 2.0}, {.bytes = 1e8, .us = 30.0}};
  machine.peak_bf16_tflop_per_s = 100;
  EXPECT_DOUBLE_EQ(FloorMicros(GemmOp(1e6, 1e8), machine), 30.0);
  EXPECT_DOUBLE_EQ(FloorMicros(GemmOp(1e10, 1e6), machine), 100.0);
}

TEST(FloorsTest, ClaimsNothingOfAnUnknownMachine) {
  EXPECT_EQ(FloorMicros(GemmOp(1e10, 1e8), Machine{}), 0);
  EXPECT_EQ(DeclaredFloorMicros(GemmOp(1e10, 1e8), Machine{}), 0);
}

TEST(FloorsTest, CountsActivationsOnlyWhereTheyExceedTheCache) {
  Machine machine;
  machine.peak_bandwidth_gb_per_s = 1000;
  machine.l2_bytes = 1'000'000;
  Op op = GemmOp(0, 1e6);
  op.work.activation_bytes = 0.5e6;
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 1.0);
  op.work.activation_bytes = 4e6;
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 5.0);
}

TEST(FloorsTest, PricesQuantizedActivationsAtTheirOwnPeak) {
  Machine machine;
  machine.peak_bf16_tflop_per_s = 100;
  machine.peak_fp8_tflop_per_s = 200;
  Op op = GemmOp(1e9, 0);
  ExpertGemmShape shape;
  shape.activations = ActivationFormat::kFp8;
  op.shape = shape;
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 5.0);
}

TEST(FloorsTest, TakesTheMeasuredRateOfProductsAndCallsOnlyTheDeclaredOneImpossible) {
  Machine machine;
  machine.backend = "cuda";
  machine.peak_bf16_tflop_per_s = 100;
  machine.measured_bf16_tflop_per_s = 80;
  EXPECT_DOUBLE_EQ(FloorMicros(GemmOp(1e10, 0), machine), 125.0);
  EXPECT_DOUBLE_EQ(DeclaredFloorMicros(GemmOp(1e10, 0), machine), 100.0);
  machine.peak_bf16_tflop_per_s.reset();
  EXPECT_DOUBLE_EQ(FloorMicros(GemmOp(1e10, 0), machine), 125.0);
  EXPECT_DOUBLE_EQ(DeclaredFloorMicros(GemmOp(1e10, 0), machine), 0.0);
}

TEST(FloorsTest, AMeasuredCpuMultipliesEveryFormatAtOneRate) {
  Machine machine;
  machine.measured_bf16_tflop_per_s = 0.5;
  Op op = GemmOp(1e9, 0);
  ExpertGemmShape shape;
  shape.activations = ActivationFormat::kFp8;
  op.shape = shape;
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 2000.0);
  machine.backend = "cuda";
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 0.0) << "fp8 products of a GPU were not measured";
}

TEST(FloorsTest, RanksOfACpuShareItsProducts) {
  Machine machine;
  machine.measured_bf16_tflop_per_s = 0.5;
  EXPECT_DOUBLE_EQ(FloorMicros(GemmOp(1e9, 0), PartOfRank(machine, 4)), 8000.0);
}

TEST(FloorsTest, LinksBoundCollectives) {
  Machine machine;
  machine.link_gb_per_s = 50;
  Op op;
  op.shape = AllReduceShape{};
  op.work.link_bytes = 1e6;
  EXPECT_DOUBLE_EQ(FloorMicros(op, machine), 20.0);
}

}  // namespace
}  // namespace lastflop
