// Cold and warm times of the CPU backend: case H5.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "tests/worker/cpu_gang.h"
#include "worker/cpu_host.h"

namespace lastflop {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMib = int64_t{1} << 20;

struct FastestRun {
  double us = std::numeric_limits<double>::infinity();
  double wall_us = std::numeric_limits<double>::infinity();  // With all that Run() does beside.
  std::string note;
};

FastestRun Fastest(const BackendOptions& options, const Point& point, int num_runs) {
  FastestRun fastest;
  OnRanks(options, 1, [&](CpuBackend& backend, Gang& gang) {
    auto arm = backend.Prepare(Plan{}, point, gang);
    ASSERT_TRUE(arm.ok()) << arm.status();
    fastest.note = (*arm)->effective_note();
    for (int run = 0; run < num_runs; ++run) {
      ASSERT_TRUE((*arm)->SetDraw(run).ok());
      const auto begin = std::chrono::steady_clock::now();
      const auto timing = (*arm)->Run();
      const std::chrono::duration<double, std::micro> wall =
          std::chrono::steady_clock::now() - begin;
      ASSERT_TRUE(timing.ok()) << timing.status();
      fastest.us = std::min(fastest.us, timing->us);
      fastest.wall_us = std::min(fastest.wall_us, wall.count());
    }
  });
  return fastest;
}

TEST(ColdCacheTest, SaysWhetherTheCacheWasColdAndTimesNoneOfTheEviction) {
  BackendOptions options = TinyOptions(TinyModel(AttentionKind::kGqa));
  options.machine.l2_bytes = 64 * kMib;  // 128 MiB are written to evict it.
  const FastestRun cold = Fastest(options, TinyPoint(), 5);
  EXPECT_THAT(cold.note, HasSubstr("the last-level cache is evicted between steps"));
  EXPECT_THAT(cold.note, Not(HasSubstr("warm")));
  // At 1 TB/s, which no CPU writes, the eviction takes 134 us: were it part of the time, next to
  // nothing would be left beside it.
  EXPECT_GT(cold.wall_us - cold.us, 134);
  options.measure.warm = true;
  const FastestRun warm = Fastest(options, TinyPoint(), 5);
  EXPECT_THAT(warm.note, HasSubstr("warm"));
  EXPECT_THAT(warm.note, Not(HasSubstr("evicted")));
}

TEST(ColdCacheTest, WhatIsEightTimesTheCacheIsAsSlowWarmAsCold) {
  // Eight times a larger one takes too long: what is evicted and what is read then are of this one.
  const int64_t cache = std::min(LastLevelCacheBytes(), 64 * kMib);
  Model model = TinyModel(AttentionKind::kGqa);
  model.num_layers = 1;
  model.layer_kinds.assign(1, LayerKind::kMoe);
  model.experts = StorageOf(WeightFormat::kBf16);
  model.num_experts = 8;
  model.top_k = 8;  // Every expert is read, whatever is drawn.
  model.moe_intermediate_size = 1024;
  model.hidden_size = 64 * (8 * cache / (8 * 3 * 1024 * 2) / 64);
  BackendOptions options = TinyOptions(model);
  options.machine.l2_bytes = cache;
  const FastestRun cold = Fastest(options, TinyPoint(1), 4);
  options.measure.warm = true;
  const FastestRun warm = Fastest(options, TinyPoint(1), 4);
  EXPECT_LT(warm.us, 1.5 * cold.us);
  EXPECT_LT(cold.us, 1.5 * warm.us);
}

}  // namespace
}  // namespace lastflop
