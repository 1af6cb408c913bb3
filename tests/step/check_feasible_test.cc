#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Plan WithDegrees(int64_t tensor, int64_t expert, int64_t data = 1) {
  Plan plan;
  plan.parallel.tensor = tensor;
  plan.parallel.expert = expert;
  plan.parallel.data = data;
  return plan;
}

std::string Refusal(const Model& model, const Plan& plan) {
  const absl::Status status = CheckFeasible(model, plan);
  return status.ok() ? "feasible" : std::string(status.message());
}

TEST(CheckFeasibleTest, ShowsTheArithmeticOfDegreesThatDoNotDivide) {
  const Model kimi = KimiModel();
  EXPECT_THAT(Refusal(kimi, WithDegrees(1, 5)), HasSubstr("384 mod 5 = 4"));
  EXPECT_THAT(Refusal(kimi, WithDegrees(1, 400)),
              HasSubstr("parallel.expert=400 > num_experts=384"));
  EXPECT_THAT(Refusal(kimi, WithDegrees(3, 1)), HasSubstr("64 mod 3 = 1"));
  EXPECT_THAT(Refusal(kimi, WithDegrees(8, 3)), HasSubstr("8 mod 3 = 2"));
}

TEST(CheckFeasibleTest, AcceptsDegreesThatDivide) {
  const Model kimi = KimiModel();
  for (const int64_t expert : {1, 2, 3, 8, 16}) {
    EXPECT_EQ(Refusal(kimi, WithDegrees(1, expert, expert)), "feasible") << expert;
  }
  for (const int64_t tensor : {1, 8}) {
    EXPECT_EQ(Refusal(kimi, WithDegrees(tensor, 1)), "feasible") << tensor;
  }
  EXPECT_EQ(Refusal(kimi, WithDegrees(8, 8)), "feasible");
  EXPECT_EQ(Refusal(kimi, WithDegrees(8, 4)), "feasible");
}

TEST(CheckFeasibleTest, GivesCublasltBf16ExpertsOnly) {
  Plan plan;
  plan.moe.kernel = MoeKernel::kCublaslt;
  EXPECT_EQ(Refusal(QwenModel(), plan), "feasible");
  EXPECT_EQ(Refusal(KimiModel(), plan),
            "moe.kernel=cublaslt reads bf16 experts; int4_g32 needs moe.weights=bf16, 3.56 times "
            "the bytes");
  plan.moe.dequant = Dequant::kSeparate;
  EXPECT_THAT(Refusal(KimiModel(), plan), HasSubstr("the copies are panels"));
  plan.moe.dequant = Dequant::kFused;
  plan.moe.weights = WeightFormat::kBf16;
  EXPECT_EQ(Refusal(KimiModel(), plan), "feasible");
}

struct ShardCase {
  int64_t intermediate;
  int64_t tensor;
  WeightFormat format;
  const char* refusal;
};

TEST(CheckFeasibleTest, HoldsQuantizationBlocksToEachRanksShard) {
  const ShardCase cases[] = {
      {1536, 8, WeightFormat::kFp8Block,
       "1536/8 = 192 is not a multiple of block 128 (remainder 64)"},
      {640, 8, WeightFormat::kFp8Block, "640/8 = 80 is not a multiple of block 128 (remainder 80)"},
      {1856, 8, WeightFormat::kNvfp4, "1856/8 = 232 is not a multiple of group 16 (remainder 8)"},
      {2048, 32, WeightFormat::kFp8Block,
       "2048/32 = 64 is not a multiple of block 128 (remainder 64)"},
      {1536, 4, WeightFormat::kFp8Block, "feasible"},
      {2048, 16, WeightFormat::kFp8Block, "feasible"},
  };
  for (const ShardCase& c : cases) {
    Model model = KimiModel();
    model.moe_intermediate_size = c.intermediate;
    model.shared_intermediate_size = 0;
    model.experts = StorageOf(c.format);
    EXPECT_THAT(Refusal(model, WithDegrees(c.tensor, 1)), HasSubstr(c.refusal));
  }
}

TEST(CheckFeasibleTest, NamesTheFieldThatChoseTheExpertsFormat) {
  Model model = KimiModel();
  model.shared_intermediate_size = 0;
  Plan plan = WithDegrees(8, 1);
  model.moe_intermediate_size = 512;
  plan.moe.weights = WeightFormat::kInt4G128;
  EXPECT_EQ(Refusal(model, plan),
            "moe.weights=int4_g128: moe.down: 512/8 = 64 is not a multiple of group 128 "
            "(remainder 64)");
}

TEST(CheckFeasibleTest, HoldsBlocksOfEveryProjectionNotOnlyExperts) {
  Model model = DeepSeekModel();
  EXPECT_EQ(Refusal(model, WithDegrees(8, 1)), "feasible");
  model.dense_intermediate_size = 18432 - 128;  // 18304 / 8 = 2288 = 17 * 128 + 112
  EXPECT_THAT(
      Refusal(model, WithDegrees(8, 1)),
      HasSubstr("ffn.gate_up: 18304/8 = 2288 is not a multiple of block 128 (remainder 112)"));
}

TEST(CheckFeasibleTest, WholeExpertsNeedNoSliceOfABlock) {
  Model model = KimiModel();
  model.moe_intermediate_size = 1536;
  model.shared_intermediate_size = 0;
  model.experts = StorageOf(WeightFormat::kFp8Block);
  EXPECT_EQ(Refusal(model, WithDegrees(8, 8)), "feasible");
}

TEST(CheckFeasibleTest, ReplicatedKvHeadsMustFitTheRanks) {
  Model model = QwenModel();
  model.attention.num_heads = 48;
  EXPECT_THAT(Refusal(model, WithDegrees(6, 1)), HasSubstr("6 mod 4 = 2"));
  EXPECT_EQ(Refusal(model, WithDegrees(8, 1)), "feasible");
}

TEST(CheckFeasibleTest, DataAttentionSparesHeadsAndNeedsExpertsOverAllRanks) {
  Plan plan = WithDegrees(3, 3);
  plan.parallel.attention = AttentionParallel::kData;
  EXPECT_EQ(Refusal(KimiModel(), plan), "feasible");  // 64 heads stay whole.
  plan = WithDegrees(8, 1);
  plan.parallel.attention = AttentionParallel::kData;
  EXPECT_THAT(Refusal(KimiModel(), plan), HasSubstr("needs parallel.expert=8"));
}

TEST(CheckFeasibleTest, RefusesSeparateDequantizationOfUnquantizedWeights) {
  Plan plan;
  plan.moe.dequant = Dequant::kSeparate;
  EXPECT_THAT(Refusal(QwenModel(), plan), HasSubstr("nothing to dequantize"));
  EXPECT_EQ(Refusal(KimiModel(), plan), "feasible");
}

TEST(CheckFeasibleTest, RefusesMicroBatchesWithoutAPipeline) {
  Plan plan;
  plan.parallel.micro_batches = 2;
  EXPECT_THAT(Refusal(QwenModel(), plan), HasSubstr("needs parallel.pipeline > 1"));
}

TEST(CheckFeasibleTest, RefusesAModelWithoutExperts) {
  Model model = QwenModel();
  model.num_experts = 0;
  EXPECT_THAT(Refusal(model, Plan{}), HasSubstr("num_experts=0"));
}

TEST(CheckPointTest, RefusesEmptyBatchesAndEmptyGroups) {
  Point point;
  point.batch = 0;
  EXPECT_FALSE(CheckPoint(QwenModel(), Plan{}, point).ok());
  point.batch = 3;
  EXPECT_TRUE(CheckPoint(QwenModel(), Plan{}, point).ok());
  const absl::Status status = CheckPoint(QwenModel(), WithDegrees(1, 1, 4), point);
  EXPECT_THAT(std::string(status.message()), HasSubstr("batch=3 over 4 data-parallel groups"));
}

TEST(CheckPointTest, RefusesMicroBatchesThatAreNotEquallyLarge) {
  Plan plan;
  plan.parallel.pipeline = 2;
  plan.parallel.micro_batches = 2;
  Point point;
  point.batch = 5;
  const absl::Status status = CheckPoint(QwenModel(), plan, point);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 mod 2 = 1"));
  point.batch = 1;
  EXPECT_THAT(std::string(CheckPoint(QwenModel(), plan, point).message()),
              HasSubstr("some would be empty"));
  point.batch = 6;
  EXPECT_TRUE(CheckPoint(QwenModel(), plan, point).ok());
  plan.parallel.data = 2;  // Three sequences in each group.
  EXPECT_FALSE(CheckPoint(QwenModel(), plan, point).ok());
}

}  // namespace
}  // namespace lastflop
