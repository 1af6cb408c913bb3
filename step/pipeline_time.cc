#include "step/pipeline_time.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace lastflop {

double PipelineMicros(const std::vector<std::vector<double>>& pass_us, PipelineEnd end) {
  const size_t micro_batches = pass_us.front().size();
  std::vector<double> free_at(pass_us.size(), 0);  // By stage.
  std::vector<double> token_at(micro_batches, 0);  // By micro-batch.
  // A step after one that filled the pipeline: with equal passes it takes as long as all later
  // ones.
  const int num_steps = end == PipelineEnd::kReturnsTokens ? 2 : 1;
  double begin = 0;
  for (int step = 0; step < num_steps; ++step) {
    begin = step == 0 ? 0 : token_at.back();
    for (size_t j = 0; j < micro_batches; ++j) {
      double at = token_at[j];
      for (size_t stage = 0; stage < pass_us.size(); ++stage) {
        at = std::max(at, free_at[stage]) + pass_us[stage][j];
        free_at[stage] = at;
      }
      token_at[j] = at;
    }
  }
  return token_at.back() - begin;
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
