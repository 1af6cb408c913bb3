#include "worker/draw_memory.h"

#include <gtest/gtest.h>

#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

double BytesOf(const Plan& plan, int64_t batch, int64_t layers_kept) {
  Point point;
  point.batch = batch;
  point.context = 512;
  const Model model = KimiModel();
  const auto step = MakeStep(model, plan, point, 0, {.layers_kept = layers_kept, .load = {}});
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? DrawMemoryBytes(model, plan, point, MakeLayout(model, plan, 0), *step) : 0;
}

Plan SlicedOver(int64_t ranks) {
  Plan plan;
  plan.parallel.tensor = ranks;
  return plan;
}

TEST(DrawMemoryTest, CountsScoresOfEveryLayerTokenAndExpert) {
  const double scores = 60.0 * 1000 * 384 * 4;
  const double routes = 60.0 * 1000 * 8 * 8;
  const double exchange = 1000.0 * 384 * 4;
  const double bias = 384.0 * 4;
  EXPECT_EQ(BytesOf(SlicedOver(8), 1000, 0), scores + routes + exchange + bias);
}

TEST(DrawMemoryTest, CountsWhatIsKeptAndOneGroupOfExperts) {
  Plan expert = SlicedOver(8);
  expert.parallel.expert = 8;
  EXPECT_EQ(BytesOf(expert, 10, 2),
            2.0 * 10 * 384 * 4 + 2.0 * 10 * 8 * 8 + 10.0 * 384 / 8 * 4 + 384.0 * 4);
}

TEST(DrawMemoryTest, HasTheTokensOfAllRanksWhereTheyAreExchanged) {
  Plan data;
  data.parallel.tensor = 8;
  data.parallel.expert = 8;
  data.parallel.attention = AttentionParallel::kData;
  const double own_routes = 60.0 * 8 * 8 * 8;
  const double all_routes = 61.0 * 64 * 8 * 8;
  EXPECT_EQ(BytesOf(data, 64, 0),
            60.0 * 64 * 384 * 4 + own_routes + all_routes + 64.0 * 384 / 8 * 4 + 384.0 * 4);
}

}  // namespace
}  // namespace lastflop
