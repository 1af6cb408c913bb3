#include "planner/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

std::vector<ExplainedLine> LinesOf(CampaignBuilder& builder, const std::string& id) {
  const absl::StatusOr<std::vector<ExplainedLine>> lines =
      Explain(MakeRanking(builder.results()), builder.results().campaign, id);
  EXPECT_TRUE(lines.ok()) << lines.status();
  return lines.value_or(std::vector<ExplainedLine>(10));
}

TEST(ExplainTest, SaysInTenLinesWhereEachNumberIsFrom) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("second", 1.05, 1.05).Measured("first", 1.3, 1.3);
  builder.last().claim = Claim{.low = 1.2, .source = "the vendor"};
  builder.last().prior = Prior{.result = "+2%", .source = "an intern"};
  const std::vector<ExplainedLine> lines = LinesOf(builder, "first");
  ASSERT_EQ(lines.size(), 10);
  EXPECT_THAT(lines[0].text, HasSubstr("1 of 2"));
  EXPECT_THAT(lines[2].text, HasSubstr("1.3"));
  EXPECT_THAT(lines[2].origin, HasSubstr("measured"));
  EXPECT_THAT(lines[4].origin, HasSubstr("modelled"));
  EXPECT_THAT(lines[5].text, HasSubstr("confirmed"));
  EXPECT_THAT(lines[5].origin, HasSubstr("measured"));
  EXPECT_THAT(lines[5].origin, HasSubstr("the claim is of the vendor"));
  EXPECT_THAT(lines[6].text, HasSubstr("+2%"));
  EXPECT_THAT(lines[7].text, HasSubstr("GPU-hours"));
  for (const ExplainedLine& line : lines) {
    EXPECT_FALSE(line.text.empty()) << line.what;
    EXPECT_FALSE(line.origin.empty()) << line.what;
  }
}

TEST(ExplainTest, BooksAPredictionToTheModelAndNotToThePrior) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.3, 1.3);
  Ranking ranking = MakeRanking(builder.results());
  ranking.interventions[0].predicted_speedup = 1.2;
  auto lines = Explain(ranking, builder.results().campaign, "one");
  ASSERT_TRUE(lines.ok());
  const auto known = std::find_if(lines->begin(), lines->end(), [](const ExplainedLine& line) {
    return line.text.find("predicted 1.2") != std::string::npos;
  });
  ASSERT_NE(known, lines->end());
  EXPECT_THAT(known->origin, HasSubstr("modelled"));
  EXPECT_THAT(known->origin, HasSubstr("the cost model's"));
}

TEST(ExplainTest, TellsOfWhatHasNoPlace) {
  CampaignBuilder builder;
  builder.Baseline(1000).Failed("pin", FailureKind::kUnsupported, "no persisting cache");
  const std::vector<ExplainedLine> lines = LinesOf(builder, "pin");
  EXPECT_THAT(lines[0].text, HasSubstr("none"));
  EXPECT_THAT(lines[1].text, HasSubstr("unsupported: no persisting cache"));
}

TEST(ExplainTest, SuggestsTheIdThatWasMeant) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("fused-moe", 1.3, 1.3);
  const auto lines =
      Explain(MakeRanking(builder.results()), builder.results().campaign, "fused_mo");
  EXPECT_EQ(lines.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(lines.status().message()), HasSubstr("fused-moe"));
}

}  // namespace
}  // namespace lastflop
