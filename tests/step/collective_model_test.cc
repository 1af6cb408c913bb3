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

TEST(CollectiveModelTest, MovesTheRowsOfAnAllToAll) {
  Op op;
  op.name = "moe.dispatch";
  op.shape = AllToAllShape{
      .num_tokens = 100, .top_k = 8, .hidden_size = 5000, .num_experts = 8, .ranks = 2};
  op.work.link_bytes = 1e6;  // All 100 rows of 10,000 B: each has an expert on the other rank.
  const auto us = ModelledCollectiveMicros(op, Linked());
  ASSERT_TRUE(us.ok()) << us.status();
  EXPECT_DOUBLE_EQ(*us, 10 + 10);
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
