#include "planner/cost/all_reduce_predictor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lastflop {
namespace {

// A ring: a latency a hop, and the bytes that a rank sends at 300 GB/s.
double RingMicros(int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  return 4 + 1.5 * (n - 1) + 2 * (n - 1) / n * bytes / 300e3;
}

AllReduceRow Row(const std::string& system, int64_t ranks, double bytes) {
  AllReduceRow row;
  row.system = system;
  row.kernel = "ring";
  row.gpus = ranks;
  row.bytes = bytes;
  return row;
}

std::vector<AllReduceRow> Calibration(const std::vector<int64_t>& ranks) {
  std::vector<AllReduceRow> rows;
  for (const int64_t n : ranks) {
    for (double bytes = 512; bytes <= 512 << 20; bytes *= 4) {
      rows.push_back(Row("h200_sxm", n, bytes));
      rows.back().latency_us = RingMicros(n, bytes);
    }
  }
  return rows;
}

TEST(AllReducePredictorTest, PredictsFourRanksFromTwoAndEight) {
  const auto predictor = AllReducePredictor::Create(Calibration({2, 8}));
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  for (double bytes = 512; bytes <= 64 << 20; bytes *= 8) {
    const auto prediction = predictor->Predict(Row("h200_sxm", 4, bytes));
    ASSERT_TRUE(prediction.ok());
    EXPECT_NEAR(prediction->us / RingMicros(4, bytes), 1, 0.15) << bytes;
    EXPECT_EQ(prediction->origin, "interpolated");
  }
}

TEST(AllReducePredictorTest, ExtrapolatesBeyondTheRanksAndSizesItKnows) {
  const auto predictor = AllReducePredictor::Create(Calibration({2, 4}));
  ASSERT_TRUE(predictor.ok());
  const auto ranks = predictor->Predict(Row("h200_sxm", 8, 16 << 20));
  ASSERT_TRUE(ranks.ok());
  EXPECT_NEAR(ranks->us / RingMicros(8, 16 << 20), 1, 0.2);
  EXPECT_EQ(ranks->origin, "modelled");
  const auto size = predictor->Predict(Row("h200_sxm", 2, 4e9));
  ASSERT_TRUE(size.ok());
  EXPECT_NEAR(size->us / RingMicros(2, 4e9), 1, 0.05);
}

TEST(AllReducePredictorTest, BorrowsFromAnotherSystemAndNeverBeatsTheLink) {
  const auto predictor = AllReducePredictor::Create(Calibration({2, 4, 8}));
  ASSERT_TRUE(predictor.ok());
  const auto prediction = predictor->Predict(Row("rtx_pro_6000_server", 8, 64 << 20));
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->origin.substr(0, 8), "assumed:");
  EXPECT_GE(prediction->low_us, 1.75 * (64 << 20) / 64e3 - 1e-6);
}

TEST(AllReducePredictorTest, RefusesOneRankAndUnknownSystems) {
  const auto predictor = AllReducePredictor::Create({});
  ASSERT_TRUE(predictor.ok());
  EXPECT_EQ(predictor->Predict(Row("h200_sxm", 1, 8)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(predictor->Predict(Row("h2000", 2, 8)).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lastflop
