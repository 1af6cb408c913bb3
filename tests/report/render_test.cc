#include "report/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/one_line.h"
#include "tests/main/golden.h"
#include "tests/report/report_fixture.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The records of RFC 4180 text.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> records = {{""}};
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        records.back().back().push_back(text[++i]);
      } else if (c == '"') {
        quoted = false;
      } else {
        records.back().back().push_back(c);
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      records.back().emplace_back();
    } else if (c == '\n') {
      records.push_back({""});
    } else if (c != '\r') {
      records.back().back().push_back(c);
    }
  }
  records.pop_back();
  return records;
}

TEST(RenderTest, PrintsTheTableAsPeopleReadIt) {
  ExpectGolden("report.txt", RenderTable(ExampleRanking(), /*color=*/false, /*width=*/200));
}

TEST(RenderTest, DropsColumnsRatherThanBreakingLinesOnANarrowTerminal) {
  const std::string table = RenderTable(ExampleRanking(), /*color=*/false, /*width=*/80);
  ExpectGolden("report_narrow.txt", table);
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(RenderTest, ColoursOnlyWhenAsked) {
  EXPECT_THAT(RenderTable(ExampleRanking(), /*color=*/false, 120), Not(HasSubstr("\x1b")));
  EXPECT_THAT(RenderTable(ExampleRanking(), /*color=*/true, 120), HasSubstr("\x1b[32m1.213x"));
}

TEST(RenderTest, PrintsMarkdown) { ExpectGolden("report.md", RenderMarkdown(ExampleRanking())); }

TEST(RenderTest, PrintsCsv) { ExpectGolden("report.csv", RenderCsv(ExampleRanking())); }

TEST(RenderTest, PrintsJson) { ExpectGolden("report.json", RenderJson(ExampleRanking())); }

TEST(RenderTest, PrintsAPageWithoutVegaThatLoadsNothing) {
  const std::string page = RenderHtml(ExampleRanking(), /*vega_script=*/"");
  ExpectGolden("report.html", page);
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, HasSubstr("<svg class=\"plain\""));
}

TEST(RenderTest, EmbedsVegaOnceWhenThereIsOne) {
  const std::string page = RenderHtml(ExampleRanking(), "var vega = 'here';");
  EXPECT_THAT(page, HasSubstr("<script>var vega = 'here';</script>"));
}

TEST(RenderTest, WritesMissingNumbersAsNotAvailableAndNeverAsZero) {
  Ranking ranking = ExampleRanking();
  ranking.interventions = {ranking.interventions[4]};
  const nlohmann::json json = nlohmann::json::parse(RenderJson(ranking));
  const nlohmann::json& one = json["ranking"][0];
  for (const char* key : {"place", "ceiling", "net_gain_gpu_hours", "break_even_gpu_hours",
                          "per_hour", "effect", "error", "predicted"}) {
    EXPECT_TRUE(one[key].is_null()) << key;
  }
  EXPECT_TRUE(one["speedup"]["estimate"].is_null());
  EXPECT_TRUE(one["points"][0]["tokens_per_s"]["variant"].is_null());
  EXPECT_EQ(one["standing"], "unsupported");
  EXPECT_THAT(RenderTable(ranking, false, 200), HasSubstr("n/a"));
}

TEST(RenderTest, ShowsHostileTextLiterallyInHtml) {
  const std::string page = RenderHtml(HostileRanking(), "var vega;");
  EXPECT_THAT(page, HasSubstr("<h1>=a&lt;b&gt;&amp;&quot;c&#39;, d=1+1|x\n&lt;/SCRIPT&gt;"));
  // What is in a script element cannot end it: only the page's own tags are left.
  EXPECT_THAT(page, Not(HasSubstr("</SCRIPT")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, Not(HasSubstr("a<b>")));
}

TEST(RenderTest, GivesHostileTextBackFromCsv) {
  const std::vector<std::vector<std::string>> records = ParseCsv(RenderCsv(HostileRanking()));
  ASSERT_GT(records.size(), 1);
  for (size_t i = 1; i < records.size(); ++i) {
    ASSERT_EQ(records[i].size(), records[0].size());
    EXPECT_EQ(records[i][0], PlainLines(kHostileName));  // All but the escape character.
  }
}

TEST(RenderTest, KeepsMarkdownTablesIntactAroundHostileText) {
  size_t num_cells = 0;
  for (const absl::string_view line : absl::StrSplit(RenderMarkdown(HostileRanking()), '\n')) {
    if (line.empty() || line.front() != '|') {
      num_cells = 0;
      continue;
    }
    size_t cells = 0;
    for (size_t i = 1; i < line.size(); ++i) {
      cells += line[i] == '|' && line[i - 1] != '\\' ? 1 : 0;
    }
    EXPECT_TRUE(num_cells == 0 || cells == num_cells) << line;
    num_cells = cells;
  }
  EXPECT_THAT(RenderMarkdown(HostileRanking()), Not(HasSubstr("</SCRIPT>")));
}

TEST(RenderTest, KeepsJsonValidWithHostileTextAndNumbersThatAreNone) {
  const nlohmann::json json = nlohmann::json::parse(RenderJson(HostileRanking()));
  EXPECT_EQ(json["campaign"], kHostileName);
  EXPECT_TRUE(json["ranking"][0]["ceiling"].is_null());
  EXPECT_TRUE(json["ranking"][0]["error"].is_null());
}

TEST(RenderTest, LetsNoHostileTextMoveTheCursor) {
  const Ranking ranking = HostileRanking();
  for (const std::string& text :
       {RenderTable(ranking, /*color=*/false, 120), RenderMarkdown(ranking), RenderCsv(ranking),
        RenderHtml(ranking, ""), RenderJson(ranking)}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
}

TEST(RenderTest, AnIntervalThatTellsNothingLeavesTheTableAtItsWidth) {
  Ranking ranking = ExampleRanking();
  for (RankedIntervention& one : ranking.interventions) {
    one.mix = SpeedupFigure{.estimate = 1.459, .low = 1e-130, .high = 1.6779e131, .num_pairs = 2};
    one.gain = Gain{.net_gpu_hours = -1.89e30, .low = -1e90, .high = 1e90};
    one.points.clear();
  }
  const std::string table = RenderTable(ranking, /*color=*/false, /*width=*/80);
  EXPECT_THAT(table, HasSubstr("1.459x (<0.001 to >1000)"));
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(RenderTest, SaysOfAPredictionHowFarItMayBeOffInsteadOfNoise) {
  Ranking ranking = ExampleRanking();
  ranking.rounds.clear();
  for (BaselinePoint& point : ranking.baseline) {
    point.standing = Standing::kPredicted;
    point.step_low_us = 0.5 * *point.step_us;
    point.step_high_us = 2 * *point.step_us;
  }
  const std::string text = RenderTable(ranking, /*color=*/false, /*width=*/200);
  EXPECT_NE(text.find("interval (us)"), std::string::npos);
  EXPECT_NE(text.find("us as predicted, averaged"), std::string::npos);
  EXPECT_EQ(text.find("against itself"), std::string::npos);
  EXPECT_EQ(text.find("until a stack is measured"), std::string::npos);
}

TEST(RenderTest, PrintsPriorsBesideWhatWasMeasured) {
  Ranking ranking = ExampleRanking();
  ranking.interventions[0].prior = Prior{.result = "+1.9%", .source = "their blog"};
  const std::string text = RenderTable(ranking, /*color=*/false, /*width=*/200);
  EXPECT_NE(text.find("+1.9%"), std::string::npos);
  EXPECT_NE(text.find("their blog"), std::string::npos);
}

TEST(RenderTest, NamesTheValueThatASweepsFiguresAreOf) {
  Ranking ranking = ExampleRanking();
  RankedIntervention& swept = ranking.interventions.front();
  swept.choice = "moe.kernel=grouped";
  const std::string name = swept.id + " (moe.kernel=grouped)";
  EXPECT_THAT(RenderTable(ranking, /*color=*/false, /*width=*/200), HasSubstr(name));
  EXPECT_THAT(RenderMarkdown(ranking), HasSubstr(name));
  EXPECT_THAT(RenderHtml(ranking, ""), HasSubstr(name));
  EXPECT_EQ(ParseCsv(RenderCsv(ranking))[1].back(), "moe.kernel=grouped");
}

TEST(RenderTest, ExportsEverySampleOfEveryAttempt) {
  const std::string text = ExportJson(ExampleRanking(), ExampleResults());
  ExpectGolden("export.json", text);
  const nlohmann::json json = nlohmann::json::parse(text);
  const nlohmann::json& trial = json["trials"][0];
  EXPECT_EQ(trial["attempts"].size(), 3);
  EXPECT_EQ(trial["attempts"][0]["failure"]["kind"], "crashed");
  EXPECT_TRUE(trial["attempts"][0]["check_before"].is_null()) << "no check ran";
  EXPECT_TRUE(trial["attempts"][0]["sampling_s"].is_null());
  ASSERT_EQ(trial["samples"].size(), 2);
  EXPECT_EQ(trial["samples"][0]["variant_us"], 80);
  EXPECT_EQ(trial["samples"][0]["authoritative"], true);
  EXPECT_TRUE(trial["samples"][1]["variant_us"].is_null());
  EXPECT_EQ(trial["samples"][1]["authoritative"], false);
}

TEST(SafeFileNameTest, LeavesNothingThatAShellOrAPathWouldRead) {
  EXPECT_EQ(SafeFileName("kimi-k2.5_int4"), "kimi-k2.5_int4");
  EXPECT_EQ(SafeFileName(kHostileName), "a-b-c-d-1-1-x-SCRIPT---_-y-z-31m");
  EXPECT_EQ(SafeFileName("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(SafeFileName("--help"), "help");
  EXPECT_EQ(SafeFileName("\xe2\x98\x83"), "campaign");
  EXPECT_LE(SafeFileName(std::string(500, 'x')).size(), 80);
  EXPECT_LE(SafeFileName(std::string(500, 'x'), std::string(500, 'y')).size(), 80);
  EXPECT_EQ(SafeFileName("a/b", "c0001"), "a-b-c0001");
  EXPECT_EQ(SafeFileName("a-b", "c0001"), "a-b");
}

}  // namespace
}  // namespace lastflop
