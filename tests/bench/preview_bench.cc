// How long a preview takes: 100,000 (plan, point) pairs predicted, bounded and ranked within 5 s on
// one core, so 50 us each (`of_a_pair`).

#include <benchmark/benchmark.h>

#include "planner/prediction.h"
#include "tests/planner/plan_grid.h"

namespace lastflop {
namespace {

// Arguments: interventions, points.
void BM_Preview(benchmark::State& state) {
  const Campaign campaign = PlanGrid(state.range(0), state.range(1));
  for (auto _ : state) {
    benchmark::DoNotOptimize(PreviewCampaign(campaign, {}));
  }
  state.counters["of_a_pair"] = benchmark::Counter(
      static_cast<double>(state.range(0) * state.range(1)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Preview)
    ->Args({100, 10})
    ->Args({1000, 100})
    ->Args({10000, 10})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lastflop

BENCHMARK_MAIN();
