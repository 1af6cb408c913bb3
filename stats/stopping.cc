#include "stats/stopping.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "stats/distributions.h"
#include "stats/judge.h"
#include "stats/resample.h"

namespace lastflop {
namespace {

// Batches are merged two by two when they are so many; between half and all of it are kept.
constexpr size_t kMaxBatches = 64;
constexpr size_t kMinBatches = 8;  // Fewer say too little about their own spread.

// The launches' spread, itself known from few launches, has to fit beside the pairs' noise.
constexpr double kLaunchMargin = 1.25;

// The largest standard error of one launch's log ratio at which its slice may stop: the trial's
// half-width over the critical value that the trial will use, over what looking at every pair
// costs, over the margin for launches.
double TargetStandardError(const SliceRule& rule) {
  const double error = 1 - rule.confidence;
  const int num_launches = std::max(1, rule.num_launches);
  // One launch gives no interval; its slice is still sampled to its own precision.
  const double critical = num_launches == 1 ? NormalQuantile(1 - error / 2)
                                            : StudentCriticalValue(error, num_launches - 1);
  // O'Brien and Fleming's boundary at its end, for any number of looks: by reflection a Brownian
  // motion is outside at some time at most twice as often as at the end.
  const double looking = NormalQuantile(1 - error / 4) / NormalQuantile(1 - error / 2);
  return std::log1p(rule.half_width) * std::sqrt(num_launches) /
         (critical * looking * kLaunchMargin);
}

// How many launches in all the half-width is expected to take, spread as the present ones are.
int LaunchesFor(const Estimate& estimate, const TrialRule& rule) {
  int num_launches = estimate.num_launches + 1;
  if (!estimate.uncertainty) {
    return num_launches;
  }
  for (; num_launches < rule.max_launches; ++num_launches) {
    Uncertainty then = *estimate.uncertainty;
    const double shrink =
        std::sqrt(static_cast<double>(estimate.num_launches) / static_cast<double>(num_launches));
    then.launch_standard_error *= shrink;
    then.draw_standard_error *= shrink;
    then.launch_degrees_of_freedom = num_launches - 1;
    if (LogHalfWidth(then, rule.confidence) <= std::log1p(rule.half_width)) {
      break;
    }
  }
  return num_launches;
}

StopReason ReasonToStop(const TrialLook& look, const TrialRule& rule, int num_launches,
                        bool is_time_over) {
  if (look.converged) {
    return StopReason::kPrecise;
  }
  const bool is_sampled = look.estimate.num_pairs >= rule.min_pairs;
  if (rule.stop_when_decided && is_sampled &&
      JudgeEffect(look.estimate, rule.min_effect) != Effect::kUndecided) {
    return StopReason::kDecided;
  }
  if (is_time_over) {
    return StopReason::kMaxTime;
  }
  if (num_launches >= rule.max_launches) {
    return StopReason::kLaunches;
  }
  return StopReason::kNone;
}

}  // namespace

SliceRule SliceRuleOf(const MeasureOptions& measure) {
  const auto launches = static_cast<int>(std::max<int64_t>(1, measure.launches));
  return {.half_width = measure.half_width,
          .confidence = measure.confidence,
          .num_launches = launches,
          .min_pairs = static_cast<int>((measure.min_pairs + launches - 1) / launches),
          .max_time = Micros(measure.max_time) / launches};
}

TrialRule TrialRuleOf(const MeasureOptions& measure, int max_launches) {
  const auto launches = static_cast<int>(std::max<int64_t>(1, measure.launches));
  return {.half_width = measure.half_width,
          .confidence = measure.confidence,
          .min_effect = measure.min_effect,
          .min_pairs = static_cast<int>(measure.min_pairs),
          .min_launches = launches,
          .max_launches = std::max(launches, max_launches),
          .max_time = Micros(measure.max_time)};
}

SliceMonitor::SliceMonitor(const SliceRule& rule)
    : rule_(rule), target_standard_error_(TargetStandardError(rule)) {
  batches_.reserve(kMaxBatches);
}

void SliceMonitor::Add(const Pair& pair) {
  const bool is_usable = !pair.throttled && pair.baseline_us > 0 && pair.variant_us > 0 &&
                         std::isfinite(pair.baseline_us) && std::isfinite(pair.variant_us);
  if (!is_usable) {
    return;
  }
  if (num_pairs_ % batch_size_ == 0) {
    if (batches_.size() == kMaxBatches) {
      for (size_t i = 0; i < kMaxBatches / 2; ++i) {
        const Batch& first = batches_[2 * i];
        const Batch& second = batches_[2 * i + 1];
        batches_[i] = {.baseline_us = first.baseline_us + second.baseline_us,
                       .variant_us = first.variant_us + second.variant_us};
      }
      batches_.resize(kMaxBatches / 2);
      batch_size_ *= 2;
    }
    batches_.emplace_back();
  }
  batches_.back().baseline_us += pair.baseline_us;
  batches_.back().variant_us += pair.variant_us;
  ++num_pairs_;
}

double SliceMonitor::StandardError() const {
  if (num_pairs_ < 2) {
    return 0;
  }
  const size_t num_full = static_cast<size_t>(num_pairs_ / batch_size_);
  double largest = 0;
  // Wider batches see slower waves: the largest of the estimates counts.
  for (size_t width = 1; width == 1 || num_full / width >= kMinBatches; width *= 2) {
    const size_t n = num_full / width;
    std::array<Batch, kMaxBatches> merged{};
    Batch total;
    for (size_t i = 0; i < n * width; ++i) {
      merged[i / width].baseline_us += batches_[i].baseline_us;
      merged[i / width].variant_us += batches_[i].variant_us;
      total.baseline_us += batches_[i].baseline_us;
      total.variant_us += batches_[i].variant_us;
    }
    double sum_of_squares = 0;
    for (const Batch& batch : std::span(merged).first(n)) {
      const double influence =
          batch.baseline_us / total.baseline_us - batch.variant_us / total.variant_us;
      sum_of_squares += influence * influence;
    }
    const auto count = static_cast<double>(n);
    largest = std::max(largest, count / (count - 1) * sum_of_squares);
  }
  return std::sqrt(largest);
}

SliceDecision SliceMonitor::Decide(Micros sampled) const {
  const bool is_precise =
      num_pairs_ >= std::max(2, rule_.min_pairs) && StandardError() <= target_standard_error_;
  if (is_precise) {
    return {.stop = true, .reason = StopReason::kPrecise};
  }
  if (sampled >= rule_.max_time) {
    return {.stop = true, .reason = StopReason::kMaxTime};
  }
  return {};
}

absl::StatusOr<TrialLook> LookAtTrial(std::span<const Pair> pairs, const TrialRule& rule,
                                      Micros sampled, double spent, uint64_t seed) {
  EstimateOptions options{
      .confidence = rule.confidence, .half_width = rule.half_width, .seed = seed};
  const auto num_launches = static_cast<int>(SumByLaunch(pairs).size());
  const bool is_time_over = sampled >= rule.max_time;
  if (num_launches < rule.min_launches && !is_time_over) {
    LASTFLOP_ASSIGN_OR_RETURN(Estimate estimate, EstimateSpeedup(pairs, options));
    estimate.interval.reset();
    estimate.min_detectable_effect.reset();
    estimate.converged = false;
    return TrialLook{.estimate = estimate,
                     .num_more_launches = rule.min_launches - num_launches,
                     .spent = spent};
  }
  const bool is_last = is_time_over || num_launches >= rule.max_launches;
  const double may_be_spent =
      SpendableShare(is_last ? 1 : static_cast<double>(num_launches) / rule.max_launches);
  options.look_share = may_be_spent - spent;
  if (!(options.look_share > 0 && options.look_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("look at ", num_launches, " launches: spent=", spent, " of ", may_be_spent,
                     " that may be: want less, which takes a launch more since the last look"));
  }
  TrialLook look{.spent = may_be_spent};
  LASTFLOP_ASSIGN_OR_RETURN(look.estimate, EstimateSpeedup(pairs, options));
  look.converged = look.estimate.converged && look.estimate.num_pairs >= rule.min_pairs;
  look.reason = ReasonToStop(look, rule, num_launches, is_time_over);
  look.stop = look.reason != StopReason::kNone;
  if (!look.stop) {
    look.num_more_launches = std::max(1, LaunchesFor(look.estimate, rule) - num_launches);
  }
  return look;
}

double SpendableShare(double fraction) {
  return fraction >= 1 ? 1 : std::log1p((std::numbers::e - 1) * std::max(0.0, fraction));
}

}  // namespace lastflop
