#include "step/pipeline_time.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace lastflop {

double PipelineMicros(const StagePasses& filling, const StagePasses& passes) {
  const size_t micro_batches = passes.front().size();
  std::vector<double> free_at(passes.size(), 0);   // By stage.
  std::vector<double> token_at(micro_batches, 0);  // By micro-batch.
  const auto go_through = [&](const StagePasses& step) {
    for (size_t j = 0; j < micro_batches; ++j) {
      for (size_t stage = 0; stage < step.size(); ++stage) {
        token_at[j] = free_at[stage] = std::max(token_at[j], free_at[stage]) + step[stage][j];
      }
    }
    return token_at.back();
  };
  const double begin = go_through(filling);
  return go_through(passes) - begin;
}

std::vector<double> PassesOnPath(const std::vector<double>& stage_us, int64_t micro_batches,
                                 PipelineEnd end) {
  const auto slowest = std::max_element(stage_us.begin(), stage_us.end()) - stage_us.begin();
  const double slowest_us = stage_us[static_cast<size_t>(slowest)];
  const double round_us = std::accumulate(stage_us.begin(), stage_us.end(), 0.0);
  const auto passes = static_cast<double>(micro_batches);
  if (end == PipelineEnd::kReturnsTokens && passes * slowest_us > round_us) {
    std::vector<double> path(stage_us.size(), 0.0);
    path[static_cast<size_t>(slowest)] = passes;
    return path;
  }
  std::vector<double> path(stage_us.size(), 1.0);
  if (end == PipelineEnd::kRunsEmpty) {
    path[static_cast<size_t>(slowest)] += passes - 1;
  }
  return path;
}

}  // namespace lastflop
