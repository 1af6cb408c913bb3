#include "gpu/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lastflop {
namespace {

using testing::HasSubstr;

TEST(SharedLibraryTest, SaysWhatItLookedForAndHowToNameIt) {
  const auto library = SharedLibrary::Open("NO_SUCH", {"libno-such.so.7"});
  ASSERT_TRUE(absl::IsNotFound(library.status()));
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("libno-such.so.7"));
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("LASTFLOP_NO_SUCH_LIBRARY=PATH"));
}

TEST(SharedLibraryTest, TakesTheNamedPathOrNothing) {
  setenv("LASTFLOP_MATH_LIBRARY", "/nowhere/libm.so.6", 1);
  const auto missing = SharedLibrary::Open("MATH", {"libm.so.6"});
  unsetenv("LASTFLOP_MATH_LIBRARY");
  ASSERT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere/libm.so.6"));
  EXPECT_TRUE(SharedLibrary::Open("MATH", {"libm.so.6"}).ok());
}

TEST(SharedLibraryTest, NamesAMissingSymbol) {
  const auto library = SharedLibrary::Open("MATH", {"libm.so.6"});
  ASSERT_TRUE(library.ok());
  EXPECT_TRUE(library->Symbol("cos").ok());
  const auto missing = library->Symbol("lastflop_no_such_function");
  ASSERT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("lastflop_no_such_function"));
}

}  // namespace
}  // namespace lastflop
