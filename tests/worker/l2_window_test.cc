#include "worker/l2_window.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

constexpr double kMib = 1 << 20;

TEST(ClampL2WindowTest, KeepsTheShareThatTheSetAsideHolds) {
  // 60 MiB set aside for 122.81 MiB.
  const auto asked = static_cast<size_t>(122.81 * kMib);
  const auto set_aside = static_cast<size_t>(60 * kMib);
  const L2Window window = ClampL2Window(asked, static_cast<size_t>(128 * kMib), set_aside);
  EXPECT_EQ(window.bytes, asked);
  EXPECT_NEAR(window.hit_ratio, 0.489, 0.0005);
}

TEST(ClampL2WindowTest, IsNoLargerThanAWindowCanBe) {
  const L2Window window = ClampL2Window(300, 128, 64);
  EXPECT_EQ(window.bytes, 128u);
  EXPECT_EQ(window.hit_ratio, 0.5);
}

TEST(ClampL2WindowTest, KeepsAllOfWhatFits) {
  EXPECT_EQ(ClampL2Window(50, 128, 64).hit_ratio, 1);
  EXPECT_EQ(ClampL2Window(0, 128, 64).hit_ratio, 1);
  EXPECT_EQ(ClampL2Window(50, 128, 0).hit_ratio, 0);
}

}  // namespace
}  // namespace lastflop
