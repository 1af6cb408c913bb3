#include "common/plan_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Model Int4Model() {
  Model model;
  model.top_k = 8;
  model.experts = StorageOf(WeightFormat::kInt4G32);
  return model;
}

TEST(LossyChangesTest, ANumberFormatIsLossyUnlessItHoldsWhatTheOldOneDid) {
  const Plan baseline;
  Plan variant;
  variant.moe.weights = WeightFormat::kNvfp4;
  EXPECT_THAT(LossyChanges(Int4Model(), baseline, variant),
              ElementsAre("moe.weights: int4_g32 -> nvfp4"));
  EXPECT_THAT(LossyChanges(Int4Model(), variant, variant), IsEmpty());
  variant.moe.weights = WeightFormat::kBf16;
  EXPECT_THAT(LossyChanges(Int4Model(), baseline, variant), IsEmpty());
  variant.moe.weights = WeightFormat::kInt4G32;  // As the model has them.
  EXPECT_THAT(LossyChanges(Int4Model(), baseline, variant), IsEmpty());
}

TEST(UnquantizedExpertsTest, AreBf16WhereTheBaselineHasAnotherFormat) {
  Plan baseline;
  Plan variant;
  EXPECT_EQ(UnquantizedExperts(Int4Model(), baseline, variant), "");
  variant.moe.weights = WeightFormat::kNvfp4;
  EXPECT_EQ(UnquantizedExperts(Int4Model(), baseline, variant), "") << "lossy whatever is said";
  variant.moe.weights = WeightFormat::kBf16;
  EXPECT_EQ(UnquantizedExperts(Int4Model(), baseline, variant), "moe.weights: int4_g32 -> bf16");
  baseline.moe.weights = WeightFormat::kBf16;
  EXPECT_EQ(UnquantizedExperts(Int4Model(), baseline, variant), "");
}

TEST(LossyChangesTest, NamesEveryFieldInCanonicalOrder) {
  Plan variant;
  variant.moe.activations = ActivationFormat::kFp8;
  variant.moe.opportunistic_keep = 4;
  variant.collectives.payload = ActivationFormat::kNvfp4;
  variant.attention_cache = CacheFormat::kFp8;
  EXPECT_THAT(LossyChanges(Int4Model(), Plan(), variant),
              ElementsAre("moe.activations: bf16 -> fp8",
                          "moe.expert_activation: top_k of 8 -> opportunistic:4",
                          "collectives.payload: bf16 -> nvfp4", "attention.cache: bf16 -> fp8"));
  EXPECT_THAT(LossyChanges(Int4Model(), variant, Plan()), IsEmpty()) << "the way back is exact";
}

TEST(LossyChangesTest, WhatOnlyRoundsOtherwiseIsExact) {
  Plan variant;
  variant.parallel = {.tensor = 8, .expert = 8};
  variant.moe.kernel = MoeKernel::kFused;
  variant.moe.dequant = Dequant::kSeparate;
  variant.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
  variant.speculative = {.draft_tokens = 4, .acceptance = 0.8, .draft_cost = 0.1};
  EXPECT_THAT(LossyChanges(Int4Model(), Plan(), variant), IsEmpty());
}

TEST(HasComparableOutputTest, NeedsTheSameTokensAndAsAShardTheSameWeights) {
  const Plan baseline;
  Plan variant;
  variant.moe.weights = WeightFormat::kInt4G32;
  EXPECT_TRUE(HasComparableOutput(baseline, variant, Fidelity::kShard));
  variant.parallel.expert = 8;
  EXPECT_TRUE(HasComparableOutput(baseline, variant, Fidelity::kFull));
  EXPECT_FALSE(HasComparableOutput(baseline, variant, Fidelity::kShard));
  variant = baseline;
  variant.speculative.draft_tokens = 2;
  EXPECT_FALSE(HasComparableOutput(baseline, variant, Fidelity::kFull));
  variant = baseline;
  variant.parallel.data = 2;
  EXPECT_FALSE(HasComparableOutput(baseline, variant, Fidelity::kFull));
  variant = baseline;
  variant.parallel.pipeline = 2;  // Its tokens come out micro-batch by micro-batch, in order.
  variant.parallel.micro_batches = 2;
  EXPECT_TRUE(HasComparableOutput(baseline, variant, Fidelity::kFull));
}

}  // namespace
}  // namespace lastflop
