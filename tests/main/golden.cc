#include "tests/main/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lastflop {

void ExpectGolden(absl::string_view name, absl::string_view text) {
  const std::filesystem::path path = absl::StrCat("tests/golden/", name);
  if (std::getenv("LASTFLOP_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream out(path, std::ios::binary);
    out << text;
    ASSERT_TRUE(out.flush()) << "writing " << path;
    return;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << path << " is missing: run this test with --update_golden";
  std::ostringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(golden.str(), std::string(text))
      << path << ": if the change is meant, run this test with --update_golden";
}

}  // namespace lastflop
