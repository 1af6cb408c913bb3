// The main of every test binary.
//
// Its exit code tells ctest what a regular expression over the output cannot: a binary with one
// failed and nine skipped tests failed, and one whose tests all skipped did not pass.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kAllSkipped = 77;  // SKIP_RETURN_CODE in lastflop_add_test.

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--update_golden") == 0) {
      setenv("LASTFLOP_UPDATE_GOLDEN", "1", /*overwrite=*/1);  // Read by tests/main/golden.cc.
    }
  }
  const int exit_code = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  if (exit_code == 0 && tests.successful_test_count() == 0 && tests.skipped_test_count() > 0) {
    return kAllSkipped;
  }
  return exit_code;
}
