#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/units.h"
#include "stats/estimate.h"
#include "stats/pair.h"

// When to stop sampling, and what looking early costs. Two rules: a launch's slice of a trial stops
// in the child, on the width of its own noise; the trial stops at the coordinator, on all launches.
// docs/measuring.md, "Stopping".
namespace lastflop {

enum class StopReason {
  kNone,     // Go on.
  kPrecise,  // The half-width is reached.
  kDecided,  // The effect is known, though not to the half-width.
  kMaxTime,
  kLaunches,  // No launch is left.
};

// One launch's slice of a trial.
struct SliceRule {
  double half_width = 0.005;  // Of the whole trial's interval, relative.
  double confidence = 0.95;
  int num_launches = 3;  // Of the trial.
  int min_pairs = 10;    // Of this slice.
  Micros max_time{1e6};  // Timed sampling of this slice.
};

// The equal share that each of the planned launches has in a trial's min_pairs and max_time.
SliceRule SliceRuleOf(const MeasureOptions& measure);

struct SliceDecision {
  bool stop = false;
  StopReason reason = StopReason::kNone;  // kNone, kPrecise or kMaxTime.
};

// Follows a launch's pairs in constant memory. Add and Decide cost well under a microsecond, so
// that they can be called after every pair. It looks at the width of the noise and never at the
// effect, which therefore gains nothing from stopping here. One thread at a time.
class SliceMonitor {
 public:
  explicit SliceMonitor(const SliceRule& rule);

  // The next pair in time. A throttled pair, or one with a time that no estimate takes (not finite
  // or not positive), counts for nothing but its time.
  void Add(const Pair& pair);

  // `sampled` is the timed sampling of this slice so far, both arms.
  SliceDecision Decide(Micros sampled) const;

  int num_pairs() const { return num_pairs_; }

  // Standard error of this launch's log ratio, from means of consecutive batches, so that
  // autocorrelation counts; 0 with fewer than two pairs.
  double StandardError() const;

 private:
  struct Batch {
    double baseline_us = 0;
    double variant_us = 0;
  };

  SliceRule rule_;
  double target_standard_error_;
  std::vector<Batch> batches_;  // All of batch_size_ pairs but the last, which may have fewer.
  int batch_size_ = 1;
  int num_pairs_ = 0;
};

// A whole trial.
struct TrialRule {
  double half_width = 0.005;
  double confidence = 0.95;
  double min_effect = 0.01;
  int min_pairs = 30;
  int min_launches = 3;  // No look before so many.
  int max_launches = 3;  // More than min_launches: launches may be added, and looks are paid for.
  Micros max_time{3e6};  // Timed sampling, all launches together.
  bool stop_when_decided = false;  // Stop once the effect is faster, slower or same.
};

// The campaign's rule, with launches added up to `max_launches` (at least measure.launches).
TrialRule TrialRuleOf(const MeasureOptions& measure, int max_launches);

struct TrialLook {
  // Its interval, at this look's share of the error, holds whatever made the trial stop here.
  Estimate estimate{};
  bool stop = false;
  StopReason reason = StopReason::kNone;
  bool converged = false;  // Stopped because the half-width is reached.
  int num_more_launches =
      0;             // Not stopped: launches that the half-width is expected to take, >= 1.
  double spent = 0;  // Share of the error spent so far; give it to the next look.
};

// Looks at all pairs of all launches that have ended. `sampled` is their timed sampling together;
// `spent` is the last look's, 0 at the first. Before `min_launches`, unless max_time is over, the
// estimate has no interval and nothing is spent. InvalidArgument: as EstimateSpeedup, or `spent`
// leaves nothing because no launch was added since the last look.
absl::StatusOr<TrialLook> LookAtTrial(std::span<const Pair> pairs, const TrialRule& rule,
                                      Micros sampled, double spent, uint64_t seed);

// The share of the error 1 - confidence that may be spent by the time `fraction` (0 to 1) of the
// launches have run: Lan and DeMets' (1983) spending function of Pocock's shape.
double SpendableShare(double fraction);

}  // namespace lastflop
