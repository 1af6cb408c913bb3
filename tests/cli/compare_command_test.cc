// compare as the command line calls it: what its exit code says of two exports.
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
#include "planner/rank.h"
#include "report/render.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

namespace fs = std::filesystem;

class CompareCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / absl::StrCat("compare_command_", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // An export of a campaign whose one intervention takes `speedup`.
  std::string Export(const std::string& name, double speedup) const {
    CampaignBuilder builder;
    builder.Baseline(1000).Measured("one", speedup, speedup);
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << ExportJson(MakeRanking(builder.results()), builder.results());
    return path;
  }

  int Compare(const std::string& a, const std::string& b) {
    CompareFlags flags;
    flags.a = a;
    flags.b = b;
    flags.format = "csv";
    err_.str("");
    Io io{.out = out_, .err = err_};
    return CompareCommand(flags, io);
  }

  fs::path folder_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CompareCommandTest, EndsWithOneWhereSomethingBecameSlowerAndNamesIt) {
  const std::string before = Export("before.json", 1.3);
  const std::string after = Export("after.json", 1.1);
  EXPECT_EQ(Compare(before, after), kExitRegression);
  EXPECT_EQ(kExitRegression, 1);
  EXPECT_THAT(err_.str(), testing::HasSubstr("regression: one at decode b1 c4096"));
  EXPECT_EQ(Compare(after, before), kExitFinished) << "faster is none";
  EXPECT_EQ(Compare(before, before), kExitFinished);
  EXPECT_EQ(Compare(before, (folder_ / "none.json").string()), kExitUsage);
}

}  // namespace
}  // namespace lastflop
