#pragma once

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "stats/pair.h"
#include "stats/stopping.h"

// A device that exists on paper: pairs with the troubles that real ones have.
namespace lastflop {

struct SimulationOptions {
  double speedup = 1;            // Planted: of the part of the baseline that scales.
  double baseline_us = 1000;     // Mean over draws.
  double variant_fixed_us = 0;   // Part of the variant that no draw changes.
  double draw_spread = 0;        // Standard deviation of the log of a draw's cost; its mean is 1.
  double noise = 0.01;           // Standard deviation of a pair's log ratio within a launch.
  double autocorrelation = 0;    // Of that noise, lag one.
  double launch_spread = 0;      // Standard deviation of a launch's log ratio.
  double draw_ratio_spread = 0;  // Standard deviation of a draw's own log ratio.
  double drift_per_pair = 0;     // Both arms slow down by this, relative to the launch's start.
  double outlier_share = 0;      // Of samples.
  double outlier_factor = 1.5;   // Of an outlier's time.
  bool shares_draws = false;     // Every launch sees the same draws.
};

class SimulatedSampler {
 public:
  SimulatedSampler(const SimulationOptions& options, uint64_t seed)
      : options_(options), seed_(seed) {}

  // Begins a fresh launch, numbered from 0.
  void Launch();

  // The launch's next pair. Launch() must have been called.
  Pair Next();

  // The ratio of the arms' expected times.
  double TrueSpeedup() const;

 private:
  double Uniform();
  double Normal();

  SimulationOptions options_;
  uint64_t seed_;
  uint64_t counter_ = 0;
  int launch_ = -1;
  int64_t index_in_launch_ = 0;
  double launch_log_ratio_ = 0;
  double noise_log_ratio_ = 0;
};

struct SimulatedTrial {
  std::vector<Pair> pairs;
  Micros sampled{0};
  TrialLook look;  // The last.
};

// Runs a trial as worker and coordinator would: slices that stop early, then looks, then more
// launches while the rule asks for them.
SimulatedTrial RunSimulatedTrial(SimulatedSampler& sampler, const SliceRule& slice,
                                 const TrialRule& rule);

}  // namespace lastflop
