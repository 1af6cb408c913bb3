// How long one prediction of a whole step takes: 20 us on one core are allowed.

#include <benchmark/benchmark.h>

#include "planner/cost/predict_step.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

void BM_PredictStep(benchmark::State& state) {
  const Model model = KimiModel();
  const Machine machine = H200x8();
  Plan plan;
  plan.parallel.tensor = 8;
  plan.parallel.expert = state.range(0);
  plan.launch.graph = GraphMode::kFull;
  Point point;
  point.batch = 64;
  point.context = 4096;
  point.routing.distribution = Distribution::kZipf;
  auto predictor = StepPredictor::Create(model, machine);
  for (auto _ : state) {
    benchmark::DoNotOptimize(predictor->Predict(plan, point, {.with_notes = false}));
  }
}
BENCHMARK(BM_PredictStep)->Arg(1)->Arg(8);

}  // namespace
}  // namespace lastflop

BENCHMARK_MAIN();
