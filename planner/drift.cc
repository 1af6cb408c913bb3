#include "planner/drift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/figure_text.h"

namespace lastflop {
namespace {

constexpr size_t kLeastSamples = 4;  // On each side.
constexpr size_t kMostSamples = 32;
// Of a normal distribution: standard deviation over median absolute deviation, and standard error
// of the median over that of the mean.
constexpr double kDeviationOverMad = 1.4826;
constexpr double kErrorOfMedian = 1.2533;

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const double upper = *middle;
  return values.size() % 2 == 1 ? upper : (upper + *std::max_element(values.begin(), middle)) / 2;
}

// Of the logarithms of the samples: one that took twenty times as long counts as one.
struct Centre {
  double median = 0;
  double standard_error = 0;
};

Centre CentreOf(const std::vector<double>& logs) {
  Centre centre{.median = MedianOf(logs)};
  std::vector<double> distances;
  for (const double value : logs) {
    distances.push_back(std::abs(value - centre.median));
  }
  centre.standard_error = kErrorOfMedian * kDeviationOverMad * MedianOf(std::move(distances)) /
                          std::sqrt(static_cast<double>(logs.size()));
  return centre;
}

std::vector<const AttemptRecord*> AttemptsAt(std::span<const PooledTrial> trials, int point_index) {
  std::vector<const AttemptRecord*> attempts;
  for (const PooledTrial& trial : trials) {
    if (trial.trial->spec.point_index != point_index || trial.standing != Standing::kMeasured) {
      continue;
    }
    for (const AttemptRecord* attempt : trial.attempts) {
      if (!attempt->result.samples.empty() && !attempt->result.failure.has_value()) {
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
  std::vector<double> logs;
  for (const AttemptRecord* attempt : AttemptsAt(trials, point_index)) {
    for (const PairSample& sample : attempt->result.samples) {
      logs.push_back(std::log(sample.pair.baseline_us));
    }
  }
  const size_t num_samples = std::min(logs.size() / 4, kMostSamples);
  if (num_samples < kLeastSamples) {
    return std::nullopt;
  }
  const auto count = static_cast<ptrdiff_t>(num_samples);
  const Centre first = CentreOf({logs.begin(), logs.begin() + count});
  const Centre last = CentreOf({logs.end() - count, logs.end()});
  const double ratio = std::exp(last.median - first.median);
  return CampaignDrift{
      .relative = ratio - 1,
      .standard_error = ratio * std::hypot(first.standard_error, last.standard_error)};
}

std::vector<std::string> DriftWarnings(const Campaign& campaign,
                                       std::span<const BaselinePoint> baseline) {
  std::vector<std::string> warnings;
  for (const BaselinePoint& point : baseline) {
    if (!point.drift.has_value()) {
      continue;
    }
    const Point& asked = campaign.points[static_cast<size_t>(point.point_index)];
    std::vector<std::string> exceeded;
    for (const Intervention& intervention : campaign.interventions) {
      if (!intervention.claim.has_value() || !intervention.claim->IsOfBatch(asked.batch)) {
        continue;
      }
      // Who claims no effect worth acting on is not in danger of being taken for drift.
      const double claimed = std::abs(intervention.claim->low - 1);
      if (claimed >= campaign.measure.min_effect && std::abs(*point.drift) > claimed) {
        exceeded.push_back(absl::StrFormat("%s (%.1f%%)", intervention.id, 100 * claimed));
      }
    }
    if (!exceeded.empty()) {
      warnings.push_back(absl::StrFormat(
          "the baseline drifted by %s (standard error %s) between its first and last "
          "samples at %s, more than is claimed by %s",
          PercentText(*point.drift, /*sign=*/true), PercentText(point.drift_error.value_or(0)),
          point.label, absl::StrJoin(exceeded, ", ")));
    }
  }
  return warnings;
}

}  // namespace lastflop
