#include "planner/stability.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <string>

#include "common/random.h"
#include "planner/context.h"
#include "planner/economics.h"
#include "planner/pareto.h"
#include "planner/rounds.h"
#include "stats/distributions.h"

namespace lastflop {
namespace {

// Streams of the random numbers.
constexpr uint64_t kEffortStream = 11;
constexpr uint64_t kSpeedupStream = 12;

// Strictly inside (0, 1).
double Uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return (static_cast<double>(CounterRandom(seed, stream, index) >> 11) + 0.5) * 0x1.0p-53;
}

// Of the standard normal distribution, by Box and Muller: a quantile function to twelve digits took
// half of the ranking of a thousand.
double Normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(Uniform(seed, stream, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(seed, stream, 2 * index + 1));
}

// The effort below which a share `u` of the triangle lies.
double TriangleQuantile(const Effort& effort, double u) {
  const double width = effort.high_hours - effort.low_hours;
  if (!(width > 0)) {
    return effort.likely_hours;
  }
  const double rise = effort.likely_hours - effort.low_hours;
  const double fall = effort.high_hours - effort.likely_hours;
  return u * width < rise ? effort.low_hours + std::sqrt(u * width * rise)
                          : effort.high_hours - std::sqrt((1 - u) * width * fall);
}

// A speedup that is drawn anew each time: the deviation of its logarithm on each side.
struct DrawnSpeedup {
  double log_estimate = 0;
  double below = 0;
  double above = 0;

  bool is_fixed() const { return below == 0 && above == 0; }
  double At(double z) const { return std::exp(log_estimate + z * (z < 0 ? below : above)); }
};

DrawnSpeedup SpeedupOf(const RankedIntervention& one, double critical) {
  DrawnSpeedup drawn{.log_estimate = std::log(CountedPerDevice(one))};
  const bool is_proven = one.effect == Effect::kFaster || one.effect == Effect::kSlower;
  if (is_proven && one.mix->low.has_value() && one.mix->high.has_value() && *one.mix->low > 0) {
    drawn.below = std::log(one.mix->estimate / *one.mix->low) / critical;
    drawn.above = std::log(*one.mix->high / one.mix->estimate) / critical;
  }
  return drawn;
}

// Indices into the campaign's interventions of one and of all that it needs.
std::vector<size_t> PaidFor(const Campaign& campaign, const std::string& id,
                            const std::map<std::string, size_t>& index_of) {
  std::vector<size_t> paid;
  std::vector<std::string> ids = NeedsOf(campaign, id);
  ids.push_back(id);
  for (const std::string& one : ids) {
    if (const auto found = index_of.find(one); found != index_of.end()) {
      paid.push_back(found->second);
    }
  }
  return paid;
}

class Drawer {
 public:
  Drawer(const Campaign& campaign, const StabilityOptions& options,
         const std::vector<RankedIntervention>& ranked)
      : campaign_(campaign), options_(options), ranked_(ranked) {
    const double critical = NormalQuantile(1 - (1 - options.interval_confidence) / 2);
    std::map<std::string, size_t> index_of;
    for (size_t i = 0; i < campaign.interventions.size(); ++i) {
      index_of[campaign.interventions[i].id] = i;
    }
    for (const RankedIntervention& one : ranked) {
      if (one.place.has_value()) {
        speedups_.push_back(SpeedupOf(one, critical));
        paid_.push_back(PaidFor(campaign, one.id, index_of));
      }
    }
    efforts_.resize(campaign.interventions.size());
    drawn_.resize(speedups_.size());
    keys_.resize(speedups_.size());
    order_.resize(speedups_.size());
  }

  size_t size() const { return speedups_.size(); }

  // Places, by index, in draw number `draw`.
  const std::vector<size_t>& Order(int draw) {
    const auto offset = static_cast<uint64_t>(draw) * efforts_.size();
    for (size_t i = 0; i < efforts_.size(); ++i) {
      efforts_[i] = TriangleQuantile(campaign_.interventions[i].effort,
                                     Uniform(options_.seed, kEffortStream, offset + i));
    }
    const auto speedup_offset = static_cast<uint64_t>(draw) * speedups_.size();
    for (size_t i = 0; i < speedups_.size(); ++i) {
      const double z =
          speedups_[i].is_fixed() ? 0 : Normal(options_.seed, kSpeedupStream, speedup_offset + i);
      drawn_[i] = {.effort_hours = 0, .speedup = speedups_[i].At(z)};
      for (const size_t paid : paid_[i]) {
        drawn_[i].effort_hours += efforts_[paid];
      }
    }
    SetKeys();
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [this](size_t a, size_t b) { return keys_[a] > keys_[b]; });
    return order_;
  }

 private:
  void SetKeys() {
    if (options_.order == RankingOrder::kPareto) {
      const std::vector<int> layers = ParetoLayers(drawn_);
      for (size_t i = 0; i < layers.size(); ++i) {
        // Within a layer cheaper ones come first; effort is far below 1e9 hours.
        const double layer = layers[i] == 0 ? std::numeric_limits<int>::max() : layers[i];
        keys_[i] = -layer - drawn_[i].effort_hours * 1e-9;
      }
      return;
    }
    for (size_t i = 0; i < drawn_.size(); ++i) {
      keys_[i] = RankingKey(options_.order, drawn_[i].speedup, drawn_[i].effort_hours,
                            ranked_[i].whole_chance, campaign_.economics);
    }
  }

  const Campaign& campaign_;                       // Outlives this.
  const StabilityOptions& options_;                // Outlives this.
  const std::vector<RankedIntervention>& ranked_;  // Outlives this.
  std::vector<DrawnSpeedup> speedups_;
  std::vector<std::vector<size_t>> paid_;
  std::vector<double> efforts_;
  std::vector<CostAndSpeedup> drawn_;
  std::vector<double> keys_;
  std::vector<size_t> order_;
};

// `worth` an hour; work that takes no time is worth more than any that does.
double PerHour(double worth, double hours) {
  if (hours > 0) {
    return worth / hours;
  }
  return worth == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), worth);
}

}  // namespace

double RankingKey(RankingOrder order, double counted, double effort_hours, double chance,
                  const Economics& economics) {
  if (order == RankingOrder::kImpact || order == RankingOrder::kPareto) {
    return counted;
  }
  const double saving = ExpectedSaving(counted, chance);
  const double net =
      economics.gpu_hours.has_value()
          ? *economics.gpu_hours * saving - effort_hours * economics.engineer_hour_in_gpu_hours
          : saving;
  return order == RankingOrder::kPerHour   ? PerHour(net, effort_hours)
         : economics.gpu_hours.has_value() ? net
                                           : counted;
}

void SetStability(const Campaign& campaign, const StabilityOptions& options,
                  std::vector<RankedIntervention>& ranked) {
  Drawer drawer(campaign, options, ranked);
  std::vector<int> held(drawer.size(), 0);
  for (int draw = 0; draw < options.num_draws; ++draw) {
    const std::vector<size_t>& order = drawer.Order(draw);
    for (size_t place = 0; place < order.size(); ++place) {
      held[place] += order[place] == place ? 1 : 0;
    }
  }
  for (size_t i = 0; i < held.size(); ++i) {
    ranked[i].place_held = static_cast<double>(held[i]) / std::max(1, options.num_draws);
  }
}

}  // namespace lastflop
