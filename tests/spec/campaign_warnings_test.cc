// What the reader of a campaign warns of and takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spec/campaign_reader.h"
#include "tests/spec/campaign_fixture.h"

namespace lastflop {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CampaignReaderTest, WarnsOfAPatchThatChangesNothingAndKeepsIt) {
  const absl::StatusOr<Campaign> read =
      ReadText(Changed("set: {moe: {kernel: fused}}", "set: {moe: {kernel: grouped}}"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->warnings,
              ElementsAre(HasSubstr("fused: moe.kernel is grouped in the baseline already"),
                          HasSubstr("leaves the baseline as it is")));
}

TEST(CampaignReaderTest, APatchOfWhichNothingHasAnEffectIsNotMeasured) {
  const absl::StatusOr<Campaign> read = ReadText(
      Changed("set: {moe: {kernel: fused}}", "set: {collectives.all_reduce: one_shot}"),
      {"baseline.parallel.tensor=1", "interventions.expert-parallel.set.parallel.expert=1"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->interventions[1].infeasible_reason,
            "collectives.all_reduce has no effect with one rank");
}

TEST(CampaignReaderTest, ExpertsInBf16AreOtherWeightsUnlessTheFileSaysDequantized) {
  const auto fused_with = [](const char* members) {
    return ReadText(Changed("    set: {moe: {kernel: fused}}\n", members),
                    {"baseline.moe.weights=int4_g32"});
  };
  const auto warned = Contains(HasSubstr("exact, as the file says: moe.weights: int4_g32 -> "));
  const absl::StatusOr<Campaign> unsaid = fused_with("    set: {moe.weights: bf16}\n");
  ASSERT_TRUE(unsaid.ok()) << unsaid.status();
  EXPECT_EQ(unsaid->interventions[1].quality, Quality::kLossy);
  EXPECT_THAT(unsaid->warnings, Not(warned));
  const absl::StatusOr<Campaign> said =
      fused_with("    quality: exact\n    set: {moe.weights: bf16}\n");
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->interventions[1].quality, Quality::kExact);
  EXPECT_THAT(said->warnings, warned);
  EXPECT_FALSE(fused_with("    quality: exact\n    set: {moe.weights: nvfp4}\n").ok());
}

TEST(CampaignReaderTest, WarnsOfTheIdlePartOfAPatch) {
  const absl::StatusOr<Campaign> read =
      ReadText(Changed("set: {moe: {kernel: fused}}",
                       "set: {moe: {kernel: fused}, collectives.all_reduce: one_shot}"),
               {"baseline.parallel.tensor=1"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->interventions[1].infeasible_reason, "");
  EXPECT_THAT(read->warnings, Contains(HasSubstr("fused: collectives.all_reduce has no effect")));
}

TEST(CampaignReaderTest, WarnsOfAClaimAboutBatchesThatNoPointHas) {
  for (const auto& [batch, is_warned] : {std::pair("[100000, null]", true), {"[1, null]", false}}) {
    const absl::StatusOr<Campaign> read =
        ReadText(Changed("    set: {moe: {kernel: fused}}\n",
                         absl::StrCat("    set: {moe: {kernel: fused}}\n"
                                      "  - {id: claimed, tier: 1, effort: 1h, "
                                      "claim: {speedup: 1.5, batch: ",
                                      batch, ", source: x}, set: {moe.group_m: 2}}\n")));
    ASSERT_TRUE(read.ok()) << read.status();
    if (is_warned) {
      EXPECT_THAT(read->warnings, Contains(HasSubstr("claimed: no point has a batch")));
    } else {
      EXPECT_THAT(read->warnings, Not(Contains(HasSubstr("no point has a batch"))));
    }
  }
}

TEST(CampaignReaderTest, WarnsWhereAPatchTakesThePlaceOfOneThatItNeeds) {
  const absl::StatusOr<Campaign> read =
      ReadText(Changed("    set: {moe: {kernel: fused}}\n",
                       "    set: {moe: {kernel: fused}}\n"
                       "  - {id: cutlass, tier: 1, effort: 1h, needs: [fused], "
                       "set: {moe.kernel: cutlass, moe.group_m: 2}}\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->warnings,
              Contains("interventions[2]: cutlass: its moe.kernel=cutlass takes the place of "
                       "moe.kernel=fused of \"fused\", which it needs"));
}

}  // namespace
}  // namespace lastflop
