#include "worker/host_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

namespace lastflop {
namespace {

TEST(HostLoadTest, CountsWhatThisProcessTakesAsItsOwn) {
  const std::optional<CpuSeconds> before = ReadCpuSeconds();
  ASSERT_TRUE(before.has_value());
  std::optional<CpuSeconds> after = before;
  // Until this process has worked for five ticks, however busy the host is.
  while (after->own < before->own + 0.05) {
    after = ReadCpuSeconds();
    ASSERT_TRUE(after.has_value());
  }
  EXPECT_GE(after->total, before->total);
  EXPECT_GE(after->busy, before->busy);
}

TEST(HostLoadTest, IsWhatTheHostTookBeyondTheGang) {
  const double processors = std::max(1U, std::thread::hardware_concurrency());
  const CpuSeconds before{.busy = 100, .total = 1000, .own = 5};
  const CpuSeconds after{.busy = 100 + 0.75 * processors, .total = 1000 + processors, .own = 6};
  EXPECT_NEAR(*ShareElsewhere(before, after, /*own=*/0.5 * processors), 0.25, 1e-12);
  EXPECT_EQ(*ShareElsewhere(before, after, /*own=*/2 * processors), 0) << "ticks are rounded";
  EXPECT_FALSE(ShareElsewhere(before, {.busy = 101, .total = 1000 + 0.1 * processors}, 0))
      << "too short to tell";
}

}  // namespace
}  // namespace lastflop
