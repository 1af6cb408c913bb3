#include "planner/drift.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "planner/claim.h"

namespace lastflop {
namespace {

constexpr size_t kLeastSamples = 6;

struct Scatter {
  double mean_us = 0;
  double relative_error = 0;  // Standard error of the mean over the mean.
};

Scatter BaselineScatter(std::span<const PairSample> samples) {
  const auto count = static_cast<double>(samples.size());
  double sum = 0;
  for (const PairSample& sample : samples) {
    sum += sample.pair.baseline_us;
  }
  Scatter scatter{.mean_us = sum / count};
  double squares = 0;
  for (const PairSample& sample : samples) {
    squares += std::pow(sample.pair.baseline_us - scatter.mean_us, 2);
  }
  if (samples.size() > 1) {
    scatter.relative_error = std::sqrt(squares / (count - 1) / count) / scatter.mean_us;
  }
  return scatter;
}

std::vector<const AttemptRecord*> AttemptsAt(std::span<const PooledTrial> trials, int point_index) {
  std::vector<const AttemptRecord*> attempts;
  for (const PooledTrial& trial : trials) {
    if (trial.trial->spec.point_index != point_index || trial.standing != Standing::kMeasured) {
      continue;
    }
    for (const AttemptRecord* attempt : trial.attempts) {
      if (!attempt->result.samples.empty()) {
        attempts.push_back(attempt);
      }
    }
  }
  std::stable_sort(attempts.begin(), attempts.end(),
                   [](const AttemptRecord* a, const AttemptRecord* b) {
                     return a->started_at_ms < b->started_at_ms;
                   });
  return attempts;
}

}  // namespace

std::optional<CampaignDrift> DriftOverCampaign(std::span<const PooledTrial> trials,
                                               int point_index) {
  const std::vector<const AttemptRecord*> attempts = AttemptsAt(trials, point_index);
  if (attempts.empty()) {
    return std::nullopt;
  }
  std::span<const PairSample> first = attempts.front()->result.samples;
  std::span<const PairSample> last = attempts.back()->result.samples;
  if (attempts.size() == 1) {
    const size_t third = first.size() / 3;
    first = first.first(third);
    last = last.last(third);
  }
  if (first.size() + last.size() < kLeastSamples || first.empty() || last.empty()) {
    return std::nullopt;
  }
  const Scatter before = BaselineScatter(first);
  const Scatter after = BaselineScatter(last);
  const double ratio = after.mean_us / before.mean_us;
  return CampaignDrift{
      .relative = ratio - 1,
      .standard_error = ratio * std::hypot(before.relative_error, after.relative_error)};
}

std::vector<std::string> DriftWarnings(const Campaign& campaign,
                                       std::span<const BaselinePoint> baseline) {
  std::vector<std::string> warnings;
  for (const Intervention& intervention : campaign.interventions) {
    if (!intervention.claim.has_value()) {
      continue;
    }
    const double claimed = std::abs(intervention.claim->low - 1);
    for (const BaselinePoint& point : baseline) {
      const Point& asked = campaign.points[static_cast<size_t>(point.point_index)];
      if (point.drift.has_value() && ClaimsPoint(*intervention.claim, asked) &&
          std::abs(*point.drift) > std::max(claimed, 2 * point.drift_error.value_or(0))) {
        warnings.push_back(absl::StrFormat(
            "the baseline drifted by %+.1f%% between its first and last samples at %s, more than "
            "the %.1f%% that %s claims",
            100 * *point.drift, point.label, 100 * claimed, intervention.id));
      }
    }
  }
  return warnings;
}

}  // namespace lastflop
