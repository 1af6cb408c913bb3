#include "report/vega.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lastflop {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class VegaTest : public ::testing::Test {
 protected:
  VegaTest() : directory_(::testing::TempDir() + "/vega_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }

  const std::string directory_;
};

TEST_F(VegaTest, SaysNothingWhereThereIsNone) {
  EXPECT_EQ(ReadVega({directory_, directory_ + "/none"}), "");
}

TEST_F(VegaTest, TakesTheBundleWhenThereIsOneAndLetsItEndNoScript) {
  Write("vega.min.js", "var vega = '</script><!--';");
  const std::string script = ReadVega({directory_ + "/none", directory_});
  EXPECT_THAT(script, HasSubstr("var vega = '<\\/script><\\!--';"));
}

TEST_F(VegaTest, PutsTheModulesTogetherAndNeedsAllOfThem) {
  for (const char* module :
       {"util", "time", "format", "loader", "dataflow", "statistics", "transforms", "canvas",
        "scale", "scenegraph", "view-transforms", "encode", "expression", "selection", "functions",
        "event-selector", "runtime", "parser", "view"}) {
    EXPECT_EQ(ReadVega({directory_}), "") << module;
    Write(std::string("vega-") + module + ".min.js", std::string("/* ") + module + " */");
  }
  const std::string script = ReadVega({directory_});
  EXPECT_THAT(script, HasSubstr("/* parser */"));
  EXPECT_THAT(script, Not(HasSubstr("</script")));
}

}  // namespace
}  // namespace lastflop
