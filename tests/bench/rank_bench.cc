// How long a ranking of 1,000 interventions with 1,000 draws of their places takes: 2 s are
// allowed.

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "planner/best_set.h"
#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

constexpr int kNumInterventions = 1000;

// Everything that was measured to what a report shows; a quarter is faster.
void BM_RankThousandInterventions(benchmark::State& state) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  for (int i = 0; i < kNumInterventions; ++i) {
    const double speedup = 0.9 + 0.15 * CounterUniform(1, 1, static_cast<uint64_t>(i));
    builder.Measured(absl::StrCat("i", i), speedup, speedup);
    builder.last().effort = {.low_hours = 1, .likely_hours = 8, .high_hours = 40};
  }
  builder.results().campaign.budget.effort_hours = 120;
  for (auto _ : state) {
    benchmark::DoNotOptimize(MakeRanking(builder.results()));
  }
}
BENCHMARK(BM_RankThousandInterventions)->Unit(benchmark::kMillisecond);

// The best set of as many candidates as are searched exactly, under a budget that holds half.
void BM_BestSet(benchmark::State& state) {
  std::vector<SetCandidate> candidates(kMostSetCandidates);
  uint64_t index = 0;
  for (SetCandidate& one : candidates) {
    for (int point = 0; point < 5; ++point) {
      one.time_factors.push_back(0.9 + 0.1 * CounterUniform(1, 2, ++index));
    }
    one.cost = 10;
    one.effort_hours = 4 + 8 * CounterUniform(1, 2, ++index);
  }
  const SetRules rules{.time_shares = {1, 1, 1, 1, 1}, .worth = 50000, .effort_hours = 100};
  for (auto _ : state) {
    benchmark::DoNotOptimize(FindBestSet(candidates, rules));
  }
}
BENCHMARK(BM_BestSet)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lastflop

BENCHMARK_MAIN();
