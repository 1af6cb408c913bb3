#include "cli/read_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "planner/rank.h"
#include "report/render.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

TEST(ReadExportTest, GivesBackWhatCampaignsAreComparedBy) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.2, 1.3).Failed("bad", FailureKind::kCrashed, "signal 9");
  const CampaignResults& results = builder.results();
  const Ranking ranking = MakeRanking(results);
  const absl::StatusOr<ComparedCampaign> read = ParseExport(ExportJson(ranking, results), "a.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->environment, ranking.environment);
  const CampaignComparison comparison =
      CompareCampaigns({.results = results, .environment = ranking.environment}, *read);
  EXPECT_TRUE(comparison.environment.empty());
  ASSERT_EQ(comparison.cells.size(), 6);
  EXPECT_EQ(comparison.num_regressions, 0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(*comparison.cells[i].a_us, *comparison.cells[i].b_us);
  }
  EXPECT_THAT(comparison.cells[5].reason, HasSubstr("signal 9"));
}

// Readers of JSON keep 53 bits of a number: of draws next to each other they made one.
TEST(ReadExportTest, KeepsEveryBitOfADrawAndReadsEarlierExportsToo) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  const int64_t draw = (int64_t{1} << 62) + 1;
  builder.results().attempts[0].result.samples[0].pair.draw = draw;
  builder.results().attempts[0].result.data_seed = ~uint64_t{0};
  std::string text = ExportJson(MakeRanking(builder.results()), builder.results());
  const std::string quoted = absl::StrCat("\"draw\": \"", draw, "\"");
  EXPECT_THAT(text, HasSubstr(quoted));
  EXPECT_THAT(text, HasSubstr("\"data_seed\": \"18446744073709551615\""));
  const auto first_draw = [](const std::string& json) {
    const absl::StatusOr<ComparedCampaign> read = ParseExport(json, "a.json");
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? read->results.attempts[0].result.samples[0].pair.draw : 0;
  };
  EXPECT_EQ(first_draw(text), draw);
  text.replace(text.find(quoted), quoted.size(), absl::StrCat("\"draw\": ", draw));
  EXPECT_EQ(first_draw(text), draw);
  text.replace(text.find(absl::StrCat(draw)), absl::StrCat(draw).size(), "\"many\"");
  EXPECT_FALSE(ParseExport(text, "a.json").ok());
}

TEST(ReadExportTest, RefusesWhatIsNoExport) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  const auto report = ParseExport(RenderJson(MakeRanking(builder.results())), "r.json");
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("lastflop export"));
  EXPECT_FALSE(ParseExport("{", "r.json").ok());
  EXPECT_FALSE(ParseExport("[1]", "r.json").ok());
  const auto broken = ParseExport(
      R"({"campaign_id": "c", "campaign": "n", "state": "done", "confidence": "high",
          "min_effect": 0.01, "baseline": [], "environment": {}, "trials": []})",
      "r.json");
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("r.json.confidence"));
  const auto beyond = ParseExport(
      R"({"campaign_id": "c", "campaign": "n", "state": "done", "confidence": 1.5,
          "min_effect": 0.01, "baseline": [], "environment": {}, "trials": []})",
      "r.json");
  EXPECT_THAT(std::string(beyond.status().message()),
              HasSubstr("r.json.confidence: a number from 0.01 to 0.9999 was expected"));
}

}  // namespace
}  // namespace lastflop
