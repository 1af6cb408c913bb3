#include "planner/cost/moe_predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "planner/cost/held_out.h"
#include "planner/cost/rows_csv.h"
#include "tests/planner/cost/synthetic_rows.h"

namespace lastflop {
namespace {

double WorstError(const MoePredictor& predictor, const std::vector<MoeLayerRow>& rows) {
  double worst = 0;
  for (const MoeLayerRow& row : rows) {
    const auto prediction = predictor.Predict(row);
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    worst = std::max(worst, std::abs(prediction->us / *row.latency_us - 1));
  }
  return worst;
}

TEST(MoePredictorTest, FindsTheCurveThatMadeTheRowsFromHalfOfThem) {
  std::vector<MoeLayerRow> fitted;
  std::vector<MoeLayerRow> held_out;
  for (const MoeLayerRow& row : SyntheticCalibration("h200_sxm")) {
    (row.tp == 4 || row.ep == 4 ? held_out : fitted).push_back(row);
  }
  const auto predictor = MoePredictor::Create(fitted);
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  EXPECT_LT(WorstError(*predictor, held_out), 0.08);
}

// Two versions of a framework, say: the last one read is no more right than the first.
TEST(MoePredictorTest, ShowsRowsThatContradictEachOther) {
  std::vector<MoeLayerRow> rows = SyntheticCalibration("h200_sxm");
  MoeLayerRow row = rows[0];
  row.latency_us = 2 * *rows[0].latency_us;
  rows.push_back(row);
  const auto predictor = MoePredictor::Create(rows);
  ASSERT_TRUE(predictor.ok());
  const auto both = predictor->Predict(rows[0]);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->origin, "measured: 2 rows that differ by 100%");
  EXPECT_LE(both->low_us, *rows[0].latency_us);
  EXPECT_GE(both->high_us, *row.latency_us);
  // Rows of the version that is asked for say more.
  rows.back().version = "other";
  const auto versions = MoePredictor::Create(rows);
  ASSERT_TRUE(versions.ok());
  EXPECT_DOUBLE_EQ(versions->Predict(rows[0])->us, *rows[0].latency_us);
  EXPECT_DOUBLE_EQ(versions->Predict(rows.back())->us, *row.latency_us);
}

TEST(MoePredictorTest, BorrowsAnotherSystemAndSaysSoWithAWiderInterval) {
  const auto predictor = MoePredictor::Create(SyntheticCalibration("h200_sxm"));
  ASSERT_TRUE(predictor.ok());
  const auto own = predictor->Predict(SyntheticRow("h200_sxm", 8, 1, 32));
  const auto borrowed = predictor->Predict(SyntheticRow("rtx_pro_6000_server", 8, 1, 32));
  ASSERT_TRUE(own.ok() && borrowed.ok());
  EXPECT_EQ(borrowed->origin.substr(0, 8), "assumed:");
  EXPECT_NE(borrowed->origin.find("h200_sxm"), std::string::npos);
  EXPECT_GT(borrowed->high_us / borrowed->low_us, own->high_us / own->low_us);
}

TEST(MoePredictorTest, PrefersTheNearerArchitecture) {
  std::vector<MoeLayerRow> rows = SyntheticCalibration("h200_sxm");
  for (const MoeLayerRow& row : SyntheticCalibration("rtx_pro_6000_server")) {
    rows.push_back(row);
  }
  const auto predictor = MoePredictor::Create(rows);
  ASSERT_TRUE(predictor.ok());
  EXPECT_NE(predictor->Predict(SyntheticRow("h100_sxm", 8, 1, 32))->origin.find("h200_sxm"),
            std::string::npos);
  EXPECT_NE(predictor->Predict(SyntheticRow("rtx_5090", 8, 1, 32))->origin.find("rtx_pro_6000"),
            std::string::npos);
}

TEST(MoePredictorTest, GivesAKnownRowBackAsMeasured) {
  const std::vector<MoeLayerRow> rows = SyntheticCalibration("h200_sxm");
  const auto predictor = MoePredictor::Create(rows);
  ASSERT_TRUE(predictor.ok());
  const auto prediction = predictor->Predict(rows[5]);
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->origin, "measured");
  EXPECT_DOUBLE_EQ(prediction->us, *rows[5].latency_us);
}

TEST(MoePredictorTest, PredictsFromPriorsAloneAsAssumedAndNeverBelowTheFloor) {
  const auto predictor = MoePredictor::Create({});
  ASSERT_TRUE(predictor.ok());
  for (const std::string system : {"h200_sxm", "b200_sxm", "l40s"}) {
    const auto prediction = predictor->Predict(SyntheticRow(system, 1, 1, 4096));
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_EQ(prediction->origin, "assumed: no calibration");
    EXPECT_GE(prediction->low_us, prediction->floor_us);
    EXPECT_GE(prediction->high_us, prediction->us);
  }
}

TEST(MoePredictorTest, AWarmCacheHelpsOnlyWhatFitsIt) {
  const auto predictor = MoePredictor::Create({});
  ASSERT_TRUE(predictor.ok());
  const auto speedup = [&](int64_t tp, int64_t tokens) {
    MoeLayerRow row = SyntheticRow("rtx_pro_6000_server", tp, 1, tokens);
    const double cold = predictor->Predict(row)->us;
    row.warm = true;
    return cold / predictor->Predict(row)->us;
  };
  EXPECT_GT(speedup(1, 1), 1.3);         // 4 experts of 7 MB in 128 MiB.
  EXPECT_NEAR(speedup(1, 64), 1, 1e-9);  // All 64 experts: 453 MB.
}

TEST(MoePredictorTest, RefusesACalibrationRowWithoutALatency) {
  EXPECT_EQ(MoePredictor::Create({SyntheticRow("h200_sxm", 1, 1, 1)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ExpertPairsTest, BalancedTouchesAsManyExpertsAsThereArePairs) {
  const auto draws = ExpertPairs("balanced", 8, 384, 8, 8);
  ASSERT_TRUE(draws.ok());
  const ExpertCounts counts = CountTiles(*draws, 16);
  EXPECT_DOUBLE_EQ(counts.pairs, 8);
  EXPECT_DOUBLE_EQ(counts.unique_experts, 8);
  EXPECT_DOUBLE_EQ(counts.tiles, 8);
}

TEST(ExpertPairsTest, APowerLawLoadsOneRankMoreAndTouchesFewerExperts) {
  const auto even = ExpertPairs("balanced", 256, 384, 8, 8);
  const auto skewed = ExpertPairs("power_law_1.01", 256, 384, 8, 8);
  ASSERT_TRUE(even.ok() && skewed.ok());
  EXPECT_GT(CountTiles(*skewed, 16).pairs, 1.2 * CountTiles(*even, 16).pairs);
  EXPECT_LT(CountTiles(*skewed, 16).unique_experts, CountTiles(*even, 16).unique_experts);
}

TEST(ExpertPairsTest, UniformDrawsTouchWhatTheFormulaSays) {
  const auto draws = ExpertPairs("uniform", 64, 384, 8, 1);
  ASSERT_TRUE(draws.ok());
  EXPECT_NEAR(CountTiles(*draws, 16).unique_experts, 284.2, 3);
}

TEST(ExpertPairsTest, RefusesAWordItDoesNotKnow) {
  EXPECT_NE(ExpertPairs("skewed", 1, 8, 2, 1).status().message().find("balanced, uniform"),
            std::string::npos);
  EXPECT_FALSE(ExpertPairs("power_law_x", 1, 8, 2, 1).ok());
  EXPECT_FALSE(ExpertPairs("balanced", 1, 8, 2, 3).ok());
}

TEST(HeldOutTest, ChecksEachValueAgainstAllOthersAndTheOrderOfTpAndEp) {
  MeasuredRows rows;
  rows.moe = SyntheticCalibration("h200_sxm");
  for (const char* column : {"tp", "ep", "tokens"}) {
    const auto report = HoldOut(rows, column, "");
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->lines.size(), 2u);
    EXPECT_EQ(report->lines[1].num_rows, static_cast<int64_t>(rows.moe.size()));
    EXPECT_LT(report->lines[1].median_error, 0.05) << column;
    EXPECT_GE(report->num_pairs, report->num_right);
  }
}

TEST(HeldOutTest, RefusesAColumnItCannotHoldOut) {
  MeasuredRows rows;
  rows.moe = SyntheticCalibration("h200_sxm");
  EXPECT_FALSE(HoldOut(rows, "colour", "").ok());
  EXPECT_FALSE(HoldOut(rows, "system", "").ok());  // One system alone.
}

}  // namespace
}  // namespace lastflop
