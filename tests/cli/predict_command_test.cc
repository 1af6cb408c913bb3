// predict, import and preview as the command line calls them: what they say of calibration that is
// missing, and where imported rows end up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "common/exit_codes.h"

namespace lastflop {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHeader[] =
    "system,framework,version,kernel_source,dtype,hidden,inter,experts,topk,tp,ep,distribution,"
    "tokens,latency_us\n";

class PredictCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / absl::StrCat("predict_command_", getpid());
    fs::create_directories(folder_ / "machines");
    std::string rows = kHeader;
    for (const int tokens : {1, 8, 64, 512}) {
      absl::StrAppend(&rows, "rtx_pro_6000_server,lab,1,lab_marlin,int4_wo,2048,768,128,8,2,1,",
                      "uniform,", tokens, ",", 100 + tokens, "\n");
    }
    rows_ = Write("rows.csv", rows);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }

  // Eight RTX PRO 6000 with `bandwidth`, a line of the machine file; two of them run Qwen.
  std::string WriteCampaign(const std::string& bandwidth) const {
    Write("machines/rtx.yaml",
          absl::StrCat("schema: 1\nname: rtx\nbackend: cuda\n",
                       "device_name: NVIDIA RTX PRO 6000 Blackwell Server Edition\n",
                       "architecture: sm_120\nnum_devices: 8\nmemory_bytes: 100000000000\n",
                       bandwidth, "peak_bf16_tflop_per_s: 462\nlink: pcie\nlink_gb_per_s: 64\n",
                       "source: test\n"));
    return Write("campaign.yaml", absl::StrCat("schema: 1\nname: tp2\nmodel: {config: ",
                                               fs::absolute("experiments").string(),
                                               "/models/qwen3-30b-a3b.json}\n", R"yaml(machine: rtx
baseline:
  parallel: {tensor: 2}
  moe: {weights: int4_g32, kernel: grouped}
  collectives: {all_reduce: nccl}
  launch: {graph: full}
workload:
  routing: {distribution: uniform, seed: 7}
  points:
    - {phase: decode, batch: 64, context: 1024, time_share: 1}
interventions:
  - {id: no-graph, effort: 1h, set: {launch.graph: none}}
)yaml"));
  }

  int Predict(const PredictFlags& flags) {
    Io io = NewIo();
    return PredictCommand(flags, io);
  }
  int Preview(const PreviewFlags& flags) {
    Io io = NewIo();
    return PreviewCommand(flags, io);
  }
  Io NewIo() {
    out_.str("");
    err_.str("");
    return Io{.out = out_, .err = err_};
  }

  fs::path folder_;
  std::string rows_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(PredictCommandTest, MarksEveryRowAsAssumedAndWarnsWithoutCalibration) {
  PredictFlags flags;
  flags.rows = rows_;
  flags.format = "csv";
  EXPECT_EQ(Predict(flags), kExitFinished);
  EXPECT_THAT(err_.str(), HasSubstr("no calibration rows of this kind"));
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("predicted_us,low_us,high_us,origin"),
                    HasSubstr("assumed: no calibration"), Not(HasSubstr("measured\n"))));
}

TEST_F(PredictCommandTest, RefusesACalibrationFileThatIsNotThere) {
  PredictFlags flags;
  flags.rows = rows_;
  flags.calibration = {(folder_ / "none.csv").string()};
  EXPECT_EQ(Predict(flags), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("none.csv"));
  PreviewFlags preview;
  preview.campaign.file = WriteCampaign("peak_bandwidth_gb_per_s: 1597\n");
  preview.calibration = flags.calibration;
  EXPECT_EQ(Preview(preview), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("none.csv"));
}

TEST_F(PredictCommandTest, PreviewsAMachineThatNobodyMeasuredFromTheCurvesOfAnotherAndSaysSo) {
  PreviewFlags flags;
  flags.campaign.file = WriteCampaign("peak_bandwidth_gb_per_s: 1597\n");
  flags.format = "json";
  EXPECT_EQ(Preview(flags), kExitFinished) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("curves of NVIDIA H200 (sm_90), scaled by bandwidth and peak: "
                                    "nobody measured NVIDIA RTX PRO 6000"));
}

TEST_F(PredictCommandTest, ValidatingWarnsOfAMachineWithoutAMemoryBandwidth) {
  CampaignFlags flags;
  flags.file = WriteCampaign("");
  Io io = NewIo();
  EXPECT_EQ(ValidateCommand(flags, io), kExitFinished) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("warning: machine rtx has no memory bandwidth"));
  flags.file = WriteCampaign("peak_bandwidth_gb_per_s: 1597\n");
  Io quiet = NewIo();
  EXPECT_EQ(ValidateCommand(flags, quiet), kExitFinished);
  EXPECT_THAT(err_.str(), Not(HasSubstr("bandwidth")));
}

TEST_F(PredictCommandTest, PreviewsAllLayersWhateverAMeasurementKeeps) {
  PreviewFlags flags;
  flags.campaign.file = WriteCampaign("peak_bandwidth_gb_per_s: 1597\n");
  flags.campaign.overrides = {"model.layers=1", "workload.points.0.batch=40000"};
  flags.format = "json";
  EXPECT_EQ(Preview(flags), kExitUsage) << "the cache of one layer would fit";
  EXPECT_THAT(err_.str(), HasSubstr("a rank needs")) << out_.str();
  flags.campaign.overrides.pop_back();
  EXPECT_EQ(Preview(flags), kExitFinished) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("MoE layers are kept and stand for all")));
}

TEST_F(PredictCommandTest, PreviewsFromImportedRowsAndNamesTheirOrigin) {
  ImportFlags import;
  import.file = rows_;
  import.into = (folder_ / "calibration.csv").string();
  import.origin = "lab of 2026";
  Io io = NewIo();
  ASSERT_EQ(ImportCommand(import, io), kExitFinished) << err_.str();
  PreviewFlags flags;
  flags.campaign.file = WriteCampaign("peak_bandwidth_gb_per_s: 1597\n");
  flags.calibration = {import.into};
  flags.format = "json";
  EXPECT_EQ(Preview(flags), kExitFinished) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("prediction: MoE layers: imported rows of lab_marlin on "
                                    "rtx_pro_6000_server (lab of 2026), measured"));
}

TEST_F(PredictCommandTest, RefusesToPreviewAMachineWithoutABandwidth) {
  PreviewFlags flags;
  flags.campaign.file = WriteCampaign("");
  EXPECT_EQ(Preview(flags), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("neither peak_bandwidth_gb_per_s nor cold_read"));
}

}  // namespace
}  // namespace lastflop
