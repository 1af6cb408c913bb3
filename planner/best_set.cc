#include "planner/best_set.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace lastflop {
namespace {

constexpr uint32_t Bit(size_t index) { return uint32_t{1} << index; }

// The members that are on at one point, and the factor of the time there.
struct PointState {
  uint32_t on = 0;
  double factor = 1;
};

// Of `open`, members that clash with each other: the subset without a clash that takes the least
// time, beside what is on already.
PointState BestUnclashed(std::span<const SetCandidate> candidates, size_t point, uint32_t open,
                         PointState state) {
  if (open == 0) {
    return state;
  }
  const auto first = static_cast<size_t>(std::countr_zero(open));
  const PointState off = BestUnclashed(candidates, point, open & ~Bit(first), state);
  const double factor = candidates[first].time_factors[point];
  if (!(factor < 1)) {
    return off;
  }
  state.on |= Bit(first);
  state.factor *= factor;
  const PointState on =
      BestUnclashed(candidates, point, open & ~Bit(first) & ~candidates[first].clashes, state);
  return on.factor <= off.factor ? on : off;
}

PointState StateAt(std::span<const SetCandidate> candidates, size_t point, uint32_t set) {
  PointState state;
  uint32_t clashing = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((set & Bit(i)) == 0) {
      continue;
    }
    if ((candidates[i].clashes & set) != 0) {
      clashing |= Bit(i);
    } else {
      state.on |= Bit(i);
      state.factor *= candidates[i].time_factors[point];
    }
  }
  return BestUnclashed(candidates, point, clashing, state);
}

class Search {
 public:
  Search(std::span<const SetCandidate> candidates, const SetRules& rules)
      : candidates_(candidates), rules_(rules), num_points_(rules.time_shares.size()) {
    const double total = std::accumulate(rules.time_shares.begin(), rules.time_shares.end(), 0.0);
    for (const double share : rules.time_shares) {
      shares_.push_back(total > 0 ? share / total : 0);
    }
    SetHopeless();
    SetOrder();
    SetOptimism();
    best_.on.assign(num_points_, 0);
  }

  BestSet Find() {
    std::vector<double> factors((candidates_.size() + 1) * num_points_, 1.0);
    Visit(0, 0, 0, 0, 0, factors.data());
    return best_;
  }

  BestSet Evaluate(uint32_t set) const {
    BestSet result{.set = set};
    double cost = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      cost += (set & Bit(i)) != 0 ? candidates_[i].cost : 0;
    }
    double time = 0;
    for (size_t point = 0; point < num_points_; ++point) {
      const PointState state = StateAt(candidates_, point, set);
      result.on.push_back(state.on);
      time += shares_[point] * state.factor;
    }
    result.gain = set == 0 ? 0 : rules_.worth * (1 - time) - cost;
    return result;
  }

 private:
  // What costs more than it saves whatever is beside it, and that nothing needs which is not such
  // itself: in no best set. Many of these would make the bound below worthless.
  void SetHopeless() {
    hopeless_.assign(candidates_.size(), false);
    std::vector<double> most(num_points_, 1.0);  // Of the time beside it.
    for (const SetCandidate& candidate : candidates_) {
      for (size_t point = 0; point < num_points_; ++point) {
        most[point] *= std::max(1.0, candidate.time_factors[point]);
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < candidates_.size(); ++i) {
        bool must_stay = candidates_[i].clashes != 0;  // Beside it others may be off.
        for (size_t j = 0; j < candidates_.size(); ++j) {
          must_stay |= !hopeless_[j] && (candidates_[j].needs & Bit(i)) != 0;
        }
        double saved = 0;
        for (size_t point = 0; point < num_points_; ++point) {
          saved += shares_[point] * most[point] * (1 - candidates_[i].time_factors[point]);
        }
        if (!hopeless_[i] && !must_stay && rules_.worth * saved - candidates_[i].cost < 0) {
          hopeless_[i] = changed = true;
        }
      }
    }
  }

  // Those that save most come first, so that a good set is found early and bounds cut deep.
  void SetOrder() {
    std::vector<double> savings;
    for (const SetCandidate& candidate : candidates_) {
      double time = 0;
      for (size_t point = 0; point < num_points_; ++point) {
        time += shares_[point] * candidate.time_factors[point];
      }
      savings.push_back(rules_.worth * (1 - time) - candidate.cost);
    }
    order_.resize(candidates_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&savings](size_t a, size_t b) { return savings[a] > savings[b]; });
  }

  // By depth and point: the factor of everything from there on that saves time.
  void SetOptimism() {
    optimism_.assign((candidates_.size() + 1) * num_points_, 1.0);
    for (size_t depth = candidates_.size(); depth-- > 0;) {
      for (size_t point = 0; point < num_points_; ++point) {
        optimism_[depth * num_points_ + point] =
            optimism_[(depth + 1) * num_points_ + point] *
            (hopeless_[order_[depth]]
                 ? 1.0
                 : std::min(1.0, candidates_[order_[depth]].time_factors[point]));
      }
    }
  }

  // The most that sets below this node give.
  double Bound(size_t depth, double cost, const double* factors) const {
    double time = 0;
    for (size_t point = 0; point < num_points_; ++point) {
      time += shares_[point] * factors[point] * optimism_[depth * num_points_ + point];
    }
    return rules_.worth * (1 - time) - cost;
  }

  bool IsBetter(double gain, double effort_hours, uint32_t set) const {
    if (gain != best_.gain) {
      return gain > best_.gain;
    }
    if (gain <= 0 || effort_hours != best_effort_hours_) {
      return gain > 0 && effort_hours < best_effort_hours_;
    }
    // Earlier candidates are lower bits: the lowest bit in which they differ decides.
    const uint32_t differ = set ^ best_.set;
    return differ != 0 && (set & Bit(static_cast<size_t>(std::countr_zero(differ)))) != 0;
  }

  void Consider(uint32_t set, double effort_hours) {
    BestSet found = Evaluate(set);
    if (IsBetter(found.gain, effort_hours, set)) {
      best_ = std::move(found);
      best_effort_hours_ = effort_hours;
    }
  }

  // `factors` are of what is in the set, by point, as if nothing clashed: no more time than it
  // really takes. There is room behind them for the next depth.
  void Visit(size_t depth, uint32_t in, uint32_t out, double cost, double effort_hours,
             double* factors) {
    // Sets that only tie are still looked at: they may take less effort. Products in another order
    // differ in their last digits.
    constexpr double kRounding = 1e-12;
    if (Bound(depth, cost, factors) < best_.gain - kRounding * rules_.worth) {
      return;
    }
    if (depth == candidates_.size()) {
      Consider(in, effort_hours);
      return;
    }
    const size_t index = order_[depth];
    const SetCandidate& candidate = candidates_[index];
    const double hours = effort_hours + candidate.effort_hours;
    const bool fits = !rules_.effort_hours.has_value() || hours <= *rules_.effort_hours;
    if (fits && !hopeless_[index] && (candidate.excludes & in) == 0 &&
        (candidate.needs & out) == 0) {
      double* const next = factors + num_points_;
      for (size_t point = 0; point < num_points_; ++point) {
        const double factor = candidate.time_factors[point];
        next[point] = factors[point] * (candidate.clashes != 0 ? std::min(1.0, factor) : factor);
      }
      Visit(depth + 1, in | Bit(index), out, cost + candidate.cost, hours, next);
    }
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if ((in & Bit(i)) != 0 && (candidates_[i].needs & Bit(index)) != 0) {
        return;  // Something in the set needs it.
      }
    }
    double* const next = factors + num_points_;
    std::copy(factors, next, next);
    Visit(depth + 1, in, out | Bit(index), cost, effort_hours, next);
  }

  std::span<const SetCandidate> candidates_;
  const SetRules& rules_;  // Outlives this.
  const size_t num_points_;
  std::vector<double> shares_;
  std::vector<bool> hopeless_;
  std::vector<size_t> order_;
  std::vector<double> optimism_;
  BestSet best_;
  double best_effort_hours_ = 0;
};

}  // namespace

BestSet FindBestSet(std::span<const SetCandidate> candidates, const SetRules& rules) {
  return Search(candidates, rules).Find();
}

BestSet EvaluateSet(std::span<const SetCandidate> candidates, const SetRules& rules, uint32_t set) {
  return Search(candidates, rules).Evaluate(set);
}

}  // namespace lastflop
