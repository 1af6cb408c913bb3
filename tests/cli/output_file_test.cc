#include "cli/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace lastflop {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("output_file_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Content(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, NamesTheFileOfAFolderAfterTheCampaignAndStaysInIt) {
  const auto path =
      WriteOutputFile(folder_.string() + "/new/deep/", "=a<b>/../\"c'\n</SCRIPT>", "html", "text");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(fs::path(*path).parent_path(), folder_ / "new" / "deep");
  EXPECT_EQ(fs::path(*path).filename(), "a-b-..-c-SCRIPT.html");
  EXPECT_EQ(Content(*path), "text");
}

TEST_F(OutputFileTest, NoTwoCampaignsShareAFileOfAFolder) {
  const std::string out = folder_.string() + "/";
  const std::pair<const char*, const char*> kCampaigns[] = {
      {"日本", "c0001"}, {"中国", "c0002"}, {"a/b", "c0003"}, {"a b", "c0004"}, {"a-b", "c0005"}};
  std::set<std::string> paths;
  for (const auto& [name, id] : kCampaigns) {
    const auto path = WriteOutputFile(out, name, "csv", id, id);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_TRUE(paths.insert(*path).second) << *path << " has been written before";
  }
  for (const auto& [name, id] : kCampaigns) {
    EXPECT_TRUE(paths.contains(*WriteOutputFile(out, name, "csv", id, id))) << "its own once more";
  }
  EXPECT_TRUE(fs::exists(folder_ / "campaign-c0001.csv"));
  EXPECT_TRUE(fs::exists(folder_ / "a-b-c0003.csv"));
  EXPECT_TRUE(fs::exists(folder_ / "a-b.csv")) << "it needed no change";
}

TEST_F(OutputFileTest, ReplacesAFileAsAWholeAndLeavesNothingBeside) {
  const std::string file = (folder_ / "report.md").string();
  ASSERT_TRUE(WriteOutputFile(file, "x", "md", "first").ok());
  ASSERT_TRUE(WriteOutputFile(file, "x", "md", "second").ok());
  EXPECT_EQ(Content(file), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(OutputFileTest, LeavesDevicesAndLinksWhatTheyAre) {
  EXPECT_EQ(WriteOutputFile("/dev/null", "x", "md", "text").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink(folder_ / "target.md", folder_ / "link.md");
  ASSERT_TRUE(WriteOutputFile((folder_ / "target.md").string(), "x", "md", "old").ok());
  ASSERT_TRUE(WriteOutputFile((folder_ / "link.md").string(), "x", "md", "new").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.md"));
  EXPECT_EQ(Content((folder_ / "target.md").string()), "new");
}

TEST_F(OutputFileTest, SaysWhereItCannotWrite) {
  const auto path = WriteOutputFile((folder_ / "no" / "such" / "file").string(), "x", "md", "text");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(path.status().message().find("no/such/file"), std::string::npos);
}

}  // namespace
}  // namespace lastflop
