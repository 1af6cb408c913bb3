#include "spec/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/spec/campaign_fixture.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<Campaign> With(const std::vector<std::string>& overrides) {
  return ReadText(kGoodCampaign, overrides);
}

std::string Refused(const std::string& override_text) {
  return std::string(With({override_text}).status().message());
}

TEST(OverrideTest, ChangesWhatTheFileSaysAndIsStored) {
  const std::vector<std::string> overrides = {"measure.max_time=1s", "baseline.moe.kernel=fused",
                                              "workload.points[1].batch=32", "name=other"};
  const absl::StatusOr<Campaign> read = With(overrides);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->measure.max_time, std::chrono::seconds(1));
  EXPECT_EQ(read->baseline.moe.kernel, MoeKernel::kFused);
  EXPECT_EQ(read->baseline.moe.weights, WeightFormat::kInt4G32);
  EXPECT_EQ(read->points[1].batch, 32);
  EXPECT_EQ(read->name, "other");
  EXPECT_EQ(read->overrides, overrides);
}

TEST(OverrideTest, FindsDottedAndNestedKeysAndMakesMissingOnes) {
  EXPECT_EQ(With({"baseline.collectives.all_reduce=ring"})->baseline.collectives.all_reduce,
            AllReduceAlgorithm::kRing);
  EXPECT_EQ(With({"baseline.collectives.nccl.channels=4"})->baseline.collectives.nccl.channels, 4);
  EXPECT_EQ(With({"interventions.fused.set.moe.kernel=cutlass"})->interventions[1].set[0].value,
            "cutlass");
  EXPECT_EQ(With({"interventions[0].set.parallel.expert=4"})->interventions[0].set[0].value, "4");
  EXPECT_EQ(
      With({"interventions.fused.prior={result: 1.9, source: me}"})->interventions[1].prior->result,
      "1.9");
  EXPECT_EQ(With({"fidelity=shard"})->fidelity, Fidelity::kShard);
  EXPECT_EQ(With({"measure.launches=4", "measure.launches=5"})->measure.launches, 5);
}

TEST(OverrideTest, IsValidatedAsIfTheFileSaidSo) {
  EXPECT_EQ(Refused("measure.max_tme=1s"),
            "--set measure.max_tme=1s:1:1: measure.max_tme: unknown key; did you mean "
            "\"max_time\"?");
  EXPECT_THAT(Refused("measure.launches=0"),
              StartsWith("--set measure.launches=0:1:18: measure.launches: \"0\" must be"));
  EXPECT_THAT(Refused("measure"), HasSubstr("must be path=value"));
  EXPECT_THAT(Refused("=3"), HasSubstr("must be path=value"));
  EXPECT_THAT(Refused("a..b=3"), HasSubstr("empty part"));
  EXPECT_THAT(Refused("workload.points[7].batch=3"), HasSubstr("an index below 3"));
  EXPECT_THAT(Refused("interventions.nobody.effort=1h"), HasSubstr("nor an id"));
  EXPECT_THAT(Refused("name.first=x"), HasSubstr("would need a map"));
  EXPECT_THAT(Refused("measure.launches=[1"), HasSubstr("is no YAML"));
  EXPECT_THAT(Refused("measure.launches=@1"), HasSubstr("measure.launches: is no YAML: "));
  EXPECT_THAT(Refused("measure.launches=@1"),
              testing::Not(testing::AnyOf(HasSubstr("value:"), HasSubstr("(file)"))))
      << "once, without places inside the value";
  EXPECT_THAT(Refused("baseline.parallel.expert=5"), HasSubstr("384 mod 5 = 4"));
  EXPECT_THAT(Refused("name="), HasSubstr("not empty"));
}

}  // namespace
}  // namespace lastflop
