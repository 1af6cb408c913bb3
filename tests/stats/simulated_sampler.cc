#include "tests/stats/simulated_sampler.h"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numbers>

#include "absl/status/statusor.h"
#include "common/random.h"

namespace lastflop {
namespace {

// Standard normal of a draw's own number, the same in every launch.
double DrawNormal(uint64_t seed, uint64_t stream, int64_t draw) {
  const auto index = static_cast<uint64_t>(draw) * 2;
  const double u = (static_cast<double>(CounterRandom(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(CounterRandom(seed, stream, index + 1) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

double SimulatedSampler::Uniform() {
  return (static_cast<double>(CounterRandom(seed_, 1, counter_++) >> 11) + 0.5) * 0x1p-53;
}

double SimulatedSampler::Normal() {
  const double radius = std::sqrt(-2 * std::log(Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

void SimulatedSampler::Launch() {
  ++launch_;
  index_in_launch_ = 0;
  launch_log_ratio_ = options_.launch_spread * Normal();
  noise_log_ratio_ = options_.noise * Normal();
}

Pair SimulatedSampler::Next() {
  constexpr int64_t kDrawsPerLaunch = 1'000'000;
  Pair pair{.launch = launch_,
            .draw = index_in_launch_ + (options_.shares_draws ? 0 : launch_ * kDrawsPerLaunch)};
  const double spread = options_.draw_spread;
  const double cost = std::exp(spread * DrawNormal(seed_, 2, pair.draw) - 0.5 * spread * spread);
  const double phi = options_.autocorrelation;
  noise_log_ratio_ = phi * noise_log_ratio_ + std::sqrt(1 - phi * phi) * options_.noise * Normal();
  const double log_ratio = launch_log_ratio_ + noise_log_ratio_ +
                           options_.draw_ratio_spread * DrawNormal(seed_, 3, pair.draw);
  // The second arm of a pair sees half a pair's drift more than the first.
  const bool is_variant_first = Uniform() < 0.5;
  const auto drift = [&](bool is_first) {
    return 1 +
           options_.drift_per_pair * (static_cast<double>(index_in_launch_) + (is_first ? 0 : 0.5));
  };
  const auto outlier = [&] {
    return Uniform() < options_.outlier_share ? options_.outlier_factor : 1.0;
  };
  const double scaled_us = options_.baseline_us * cost;
  pair.baseline_us = scaled_us * std::exp(0.5 * log_ratio) * drift(!is_variant_first) * outlier();
  pair.variant_us = (options_.variant_fixed_us + scaled_us / options_.speedup) *
                    std::exp(-0.5 * log_ratio) * drift(is_variant_first) * outlier();
  ++index_in_launch_;
  return pair;
}

double SimulatedSampler::TrueSpeedup() const {
  return options_.baseline_us /
         (options_.variant_fixed_us + options_.baseline_us / options_.speedup);
}

SimulatedTrial RunSimulatedTrial(SimulatedSampler& sampler, const SliceRule& slice,
                                 const TrialRule& rule) {
  SimulatedTrial trial;
  int num_wanted = rule.min_launches;
  while (true) {
    for (int i = 0; i < num_wanted; ++i) {
      sampler.Launch();
      SliceMonitor monitor(slice);
      Micros in_slice{0};
      while (!monitor.Decide(in_slice).stop) {
        trial.pairs.push_back(sampler.Next());
        monitor.Add(trial.pairs.back());
        in_slice += Micros(trial.pairs.back().baseline_us + trial.pairs.back().variant_us);
      }
      trial.sampled += in_slice;
    }
    absl::StatusOr<TrialLook> look =
        LookAtTrial(trial.pairs, rule, trial.sampled, trial.look.spent, /*seed=*/1);
    if (!look.ok()) {
      std::cerr << look.status() << "\n";
      std::abort();  // The simulation broke the contract: no test can go on.
    }
    trial.look = *std::move(look);
    if (trial.look.stop) {
      return trial;
    }
    num_wanted = trial.look.num_more_launches;
  }
}

}  // namespace lastflop
