#include "step/collective_model.h"

#include "gtest/gtest.h"

namespace lastflop {
namespace {

Machine Linked() {
  Machine machine;
  machine.link_gb_per_s = 100;
  machine.collective_latency_us = 10;
  return machine;
}

Op AllReduceOp(int64_t elements, int64_t ranks) {
  Op op;
  op.name = "all_reduce.moe";
  op.shape = AllReduceShape{.elements = elements, .ranks = ranks};
  return op;
}

TEST(CollectiveModelTest, MovesTwiceTheDataButForTheOwnPart) {
  // 2 (8 - 1) / 8 of 2e6 B over 100 GB/s is 35 us.
  const auto us = ModelledCollectiveMicros(AllReduceOp(1'000'000, 8), Linked());
  ASSERT_TRUE(us.ok()) << us.status();
  EXPECT_DOUBLE_EQ(*us, 10 + 35);
}

TEST(CollectiveModelTest, CostsNothingAloneAndOutsideOfCollectives) {
  EXPECT_EQ(*ModelledCollectiveMicros(AllReduceOp(1'000'000, 1), Linked()), 0);
  Op gemm;
  gemm.shape = GemmShape{};
  EXPECT_EQ(*ModelledCollectiveMicros(gemm, Machine{}), 0);
}

TEST(CollectiveModelTest, RefusesAMachineThatDoesNotSayHowFastItsLinksAre) {
  Machine machine = Linked();
  machine.collective_latency_us.reset();
  const auto us = ModelledCollectiveMicros(AllReduceOp(8, 2), machine);
  ASSERT_EQ(us.status().code(), absl::StatusCode::kInvalidArgument);  // `infeasible`
  EXPECT_NE(us.status().message().find("collective_latency_us"), absl::string_view::npos);
}

}  // namespace
}  // namespace lastflop
