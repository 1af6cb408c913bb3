#include "planner/cost/rows_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/planner/cost/synthetic_rows.h"

namespace lastflop {
namespace {

constexpr char kHeader[] =
    "system,framework,version,kernel_source,dtype,hidden,inter,experts,topk,tp,ep,distribution,"
    "tokens,latency_us\n";
constexpr char kRow[] = "h200_sxm,f,1,marlin,int4_wo,4096,1024,64,4,2,1,balanced,8,12.5\n";

absl::StatusOr<MeasuredRows> Read(const std::string& text, const ReadRowsOptions& options = {}) {
  const auto table = ParseCsv(text, "rows.csv");
  if (!table.ok()) {
    return table.status();
  }
  return ReadRows(*table, options);
}

TEST(RowsCsvTest, ReadsMoeRowsWithAndWithoutALatency) {
  const auto rows = Read(std::string(kHeader) + kRow);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->moe.size(), 1u);
  EXPECT_EQ(rows->moe[0].tp, 2);
  EXPECT_EQ(rows->moe[0].latency_us, 12.5);
  const auto without = Read(
      "tokens,system,kernel_source,dtype,hidden,inter,experts,topk,tp,ep,distribution\n"
      "8,h200_sxm,marlin,int4_wo,4096,1024,64,4,2,1,balanced\n");
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->moe[0].latency_us.has_value());
}

TEST(RowsCsvTest, RefusesSizesThatWouldTakeForEverToCount) {
  for (const auto& [column, row] : std::vector<std::pair<std::string, std::string>>{
           {"tokens", "4096,1024,64,4,2,1,power_law_1.2,1000000000000000000,1"},
           {"experts", "4096,1024,1000000000,4,2,1,power_law_1.2,8,1"},
           {"hidden", "4000000000,1024,64,4,2,1,balanced,8,1"}}) {
    const std::string message(
        Read(std::string(kHeader) + "h200_sxm,f,1,marlin,int4_wo," + row + "\n")
            .status()
            .message());
    EXPECT_THAT(message, testing::StartsWith("rows.csv:2: column " + column)) << message;
    EXPECT_THAT(message, testing::HasSubstr("and at most")) << message;
  }
}

TEST(RowsCsvTest, TellsAllReduceRowsByTheirColumns) {
  const auto rows =
      Read("system,source,kernel,gpus,bytes,latency_us\r\nh200_sxm,bench,NCCL,8,1024,9.5\r\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->all_reduce.size(), 1u);
  EXPECT_EQ(rows->all_reduce[0].gpus, 8);
}

TEST(RowsCsvTest, NamesFileLineAndColumnOfWhatIsWrong) {
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", "rows.csv:1: no header"},
      {"a,a\n1,2\n", "rows.csv:1: column a stands twice"},
      {std::string(kHeader) + "h200_sxm,f\n", "rows.csv:2: 2 cells, the header has 14"},
      {std::string(kHeader) + kRow + "h200_sxm,f,1,\"marlin\n", "rows.csv:3: a quote is opened"},
      {std::string(kHeader) + "h200,f,1,marlin,int4_wo,4096,1024,64,4,2,1,balanced,8,12.5\n",
       "rows.csv:2: column system: unknown system \"h200\""},
      {std::string(kHeader) + "h200_sxm,f,1,marlin,int5,4096,1024,64,4,2,1,balanced,8,12.5\n",
       "rows.csv:2: column dtype: dtype \"int5\" is unknown"},
      {std::string(kHeader) + "h200_sxm,f,1,marlin,int4_wo,4096,1024,64,4,3,1,balanced,8,1\n",
       "rows.csv:2: column tp"},
      {std::string(kHeader) + "h200_sxm,f,1,marlin,int4_wo,4096,1024,64,4,2,1,skew,8,12.5\n",
       "rows.csv:2: column distribution"},
      {std::string(kHeader) + "h200_sxm,f,1,marlin,int4_wo,4096,1024,64,4,2,1,balanced,0,12.5\n",
       "rows.csv:2: column tokens: \"0\" must be a whole number"},
      {std::string(kHeader) + "h200_sxm,f,1,marlin,int4_wo,4096,1024,64,4,2,1,balanced,8,nan\n",
       "rows.csv:2: column latency_us"},
      {"system,gpus,bytes\nh200_sxm,2,8\n", "rows.csv:1: no column kernel"},
  };
  for (const auto& test : kCases) {
    const auto rows = Read(test.text);
    ASSERT_FALSE(rows.ok()) << test.text;
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(rows.status().message().find(test.message), std::string::npos)
        << rows.status().message() << "\nwanted " << test.message;
  }
}

TEST(RowsCsvTest, MapsTheirColumnsToOurs) {
  const std::string theirs = "gpu,algorithm,ranks,size,time\nh200_sxm,NCCL,8,1024,9.5\n";
  const ReadRowsOptions options{.column_map = {{"gpu", "system"},
                                               {"algorithm", "kernel"},
                                               {"ranks", "gpus"},
                                               {"size", "bytes"},
                                               {"time", "latency_us"}}};
  const auto rows = Read(theirs, options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->all_reduce[0].latency_us, 9.5);
  EXPECT_FALSE(Read(theirs, {.column_map = {{"rank", "gpus"}}}).ok());
  EXPECT_FALSE(Read(theirs, {.column_map = {{"ranks", "world"}}}).ok());
}

TEST(RowsCsvTest, CalibrationLinesReadBackAsTheyWere) {
  MoeLayerRow moe = SyntheticCalibration("h200_sxm")[3];
  moe.origin = "a bench, \"quoted\"";
  moe.warm = true;
  AllReduceRow reduce;
  reduce.system = "h200_sxm";
  reduce.source = "bench";
  reduce.kernel = "NCCL";
  reduce.gpus = 4;
  reduce.bytes = 16384;
  reduce.latency_us = 9.25;
  const auto rows = Read(CalibrationHeader() + CalibrationLine(moe) + CalibrationLine(reduce),
                         {.needs_latency = true});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->moe.size(), 1u);
  ASSERT_EQ(rows->all_reduce.size(), 1u);
  EXPECT_EQ(CalibrationLine(rows->moe[0]), CalibrationLine(moe));
  EXPECT_EQ(CalibrationLine(rows->all_reduce[0]), CalibrationLine(reduce));
  EXPECT_TRUE(rows->moe[0].warm);
  EXPECT_EQ(rows->moe[0].origin, moe.origin);
}

}  // namespace
}  // namespace lastflop
