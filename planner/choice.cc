#include "planner/choice.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "stats/estimate.h"

namespace lastflop {
namespace {

bool IsMeasured(const PooledTrial* trial) {
  return trial != nullptr && trial->standing == Standing::kMeasured;
}

// Points [begin, end) that one choice is made for.
struct PointRange {
  size_t begin = 0;
  size_t end = 0;
};

// The trials of one intervention's sweep. Values are indices into `choices`, points into the
// campaign's, and a fold is what is left out while choosing: a launch, or half of the only one.
class Sweep {
 public:
  Sweep(const CampaignResults& results, std::span<const PooledTrial> trials, const std::string& id)
      : points_(results.campaign.points) {
    for (const PooledTrial& trial : trials) {
      const TrialSpec& spec = trial.trial->spec;
      if (spec.intervention_id == id && static_cast<size_t>(spec.point_index) < points_.size()) {
        Add(trial);
      }
    }
  }

  const std::vector<std::string>& choices() const { return choices_; }
  const PooledTrial* Trial(size_t choice, size_t point) const { return trials_[choice][point]; }

  // `choice`, or the first that has a trial at `point` at all.
  size_t WithTrial(size_t choice, size_t point) const {
    for (size_t other = 0; trials_[choice][point] == nullptr && other < choices_.size(); ++other) {
      if (trials_[other][point] != nullptr) {
        return other;
      }
    }
    return choice;
  }

  bool IsMeasuredAnywhere(const PointRange& range) const {
    return std::any_of(trials_.begin(), trials_.end(), [&range](const auto& at_points) {
      return std::any_of(at_points.begin() + static_cast<std::ptrdiff_t>(range.begin),
                         at_points.begin() + static_cast<std::ptrdiff_t>(range.end), IsMeasured);
    });
  }

  // Folds that have pairs; at least two whenever any trial has two pairs.
  std::set<int> Folds() const {
    if (launches_.size() > 1) {
      return launches_;
    }
    return {0, 1};
  }

  // The pairs of a trial in `fold`.
  std::vector<Pair> PairsIn(const PooledTrial& trial, int fold) const {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < trial.pairs.size(); ++i) {
      if (FoldOf(trial.pairs[i], i) == fold) {
        pairs.push_back(trial.pairs[i]);
      }
    }
    return pairs;
  }

  // The value that won outside of `left_out` over these points.
  size_t Best(const PointRange& range, std::optional<int> left_out) const {
    size_t best = 0;
    for (size_t choice = 1; choice < choices_.size(); ++choice) {
      if (MeritOf(choice, range, left_out) > MeritOf(best, range, left_out)) {
        best = choice;
      }
    }
    return best;
  }

 private:
  // The measured share of time counts first, then speed.
  struct Merit {
    double share = 0;
    double time = 0;
    bool operator>(const Merit& other) const {
      return share != other.share ? share > other.share : time < other.time;
    }
  };

  void Add(const PooledTrial& trial) {
    const TrialSpec& spec = trial.trial->spec;
    auto found = std::find(choices_.begin(), choices_.end(), spec.choice);
    if (found == choices_.end()) {
      choices_.push_back(spec.choice);
      trials_.emplace_back(points_.size(), nullptr);
      found = std::prev(choices_.end());
    }
    trials_[static_cast<size_t>(found - choices_.begin())][static_cast<size_t>(spec.point_index)] =
        &trial;
    for (const Pair& pair : trial.pairs) {
      launches_.insert(pair.launch);
    }
  }

  int FoldOf(const Pair& pair, size_t index) const {
    return launches_.size() > 1 ? pair.launch : static_cast<int>(index % 2);
  }

  Merit MeritOf(size_t choice, const PointRange& range, std::optional<int> left_out) const {
    Merit merit;
    for (size_t point = range.begin; point < range.end; ++point) {
      const PooledTrial* trial = trials_[choice][point];
      if (!IsMeasured(trial)) {
        continue;
      }
      std::vector<Pair> pairs;
      for (size_t i = 0; i < trial->pairs.size(); ++i) {
        if (FoldOf(trial->pairs[i], i) != left_out) {
          pairs.push_back(trial->pairs[i]);
        }
      }
      const std::optional<MeanTimes> means = MeanTimesOf(pairs);
      if (means.has_value() && means->baseline_us > 0) {
        // A point without a share of the time still needs its value.
        const double share = range.end - range.begin == 1 ? 1 : points_[point].time_share;
        merit.share += share;
        merit.time += share * means->variant_us / means->baseline_us;
      }
    }
    return merit;
  }

  const std::vector<Point>& points_;  // Outlives this.
  std::vector<std::string> choices_;
  std::vector<std::vector<const PooledTrial*>> trials_;  // [choice][point]
  std::set<int> launches_;
};

// What every fold reports at `point`. Returns whether all folds chose `named`.
bool CollectPairs(const Sweep& sweep, size_t point, const PointRange& range, size_t named,
                  std::vector<Pair>& pairs) {
  bool agree = true;
  for (const int fold : sweep.Folds()) {
    const size_t best = sweep.Best(range, fold);
    const PooledTrial* trial = sweep.Trial(best, point);
    agree &= best == named;
    if (IsMeasured(trial)) {
      const std::vector<Pair> reported = sweep.PairsIn(*trial, fold);
      pairs.insert(pairs.end(), reported.begin(), reported.end());
    }
  }
  return agree;
}

}  // namespace

SweepChoice ChooseTrials(const CampaignResults& results, std::span<const PooledTrial> trials,
                         const Intervention& intervention) {
  const size_t num_points = results.campaign.points.size();
  const Sweep sweep(results, trials, intervention.id);
  SweepChoice chosen;
  chosen.points.resize(num_points);
  if (sweep.choices().empty()) {
    return chosen;
  }
  const bool has_choice = sweep.choices().size() > 1;
  const bool per_point = intervention.switchable == Switchable::kPerBatch;
  std::vector<std::string> named_choices;
  bool agree = true;
  for (size_t point = 0; point < num_points; ++point) {
    const PointRange range = per_point ? PointRange{point, point + 1} : PointRange{0, num_points};
    const size_t named = sweep.WithTrial(sweep.Best(range, std::nullopt), point);
    ChosenTrial& one = chosen.points[point];
    one.trial = sweep.Trial(named, point);
    one.choice = sweep.choices()[named];
    const bool is_chosen = !has_choice || sweep.IsMeasuredAnywhere(range);
    if (is_chosen &&
        std::find(named_choices.begin(), named_choices.end(), one.choice) == named_choices.end()) {
      named_choices.push_back(one.choice);
    }
    if (!IsMeasured(one.trial)) {
      continue;
    }
    if (has_choice) {
      agree &= CollectPairs(sweep, point, range, named, one.pairs);
    } else {
      one.pairs = one.trial->pairs;
    }
  }
  if (named_choices.empty()) {  // Nothing ran: there is a reason, and no value that won.
    for (ChosenTrial& one : chosen.points) {
      one.choice.clear();
    }
    return chosen;
  }
  chosen.choice = absl::StrJoin(named_choices, " | ");
  if (has_choice) {
    chosen.method = absl::StrCat(
        "best of ", sweep.choices().size(), " values", per_point ? " at each point" : "",
        ", chosen for each launch on the other launches",
        agree ? "" : "; the launches disagree on the best, so the figure is that of choosing");
  }
  return chosen;
}

}  // namespace lastflop
