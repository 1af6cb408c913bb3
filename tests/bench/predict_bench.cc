// How long one prediction of a whole step takes: 20 us on one core are allowed.

#include <benchmark/benchmark.h>

#include "planner/cost/predict_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

Machine BenchMachine() {
  Machine machine;
  machine.name = "h200-x8";
  machine.backend = "cuda";
  machine.device_name = "NVIDIA H200";
  machine.architecture = "sm_90a";
  machine.l2_bytes = 62914560;
  machine.peak_bandwidth_gb_per_s = 4800;
  machine.peak_bf16_tflop_per_s = 989;
  machine.link_gb_per_s = 450;
  machine.collective_latency_us = 20;
  return machine;
}

void BM_PredictStep(benchmark::State& state) {
  const Model model = KimiModel();
  const Machine machine = BenchMachine();
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
