#include <gtest/gtest.h>

namespace {

TEST(OutcomeTest, SkipsOne) { GTEST_SKIP() << "always"; }

#if defined(OUTCOME_passes) || defined(OUTCOME_fails)
TEST(OutcomeTest, PassesOne) { EXPECT_EQ(1 + 1, 2); }
#endif

#ifdef OUTCOME_fails
TEST(OutcomeTest, FailsOne) { FAIL() << "on purpose"; }
#endif

}  // namespace
