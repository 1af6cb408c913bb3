#include "planner/compare.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/pool.h"
#include "stats/estimate.h"
#include "stats/multiplicity.h"
#include "stats/throttle.h"

namespace lastflop {
namespace {

// The log of a mean time, with what is not known of it.
struct LogTime {
  double log_us = 0;
  double mean_us = 0;
  int64_t num_pairs = 0;
  int64_t num_launches = 0;
  double launch_variance = 0;  // Of log_us. Needs two launches.
  double pair_variance = 0;
};

double Variance(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
  }
  double sum = 0;
  for (const double value : values) {
    sum += (value - mean) * (value - mean);
  }
  return sum / static_cast<double>(values.size() - 1);
}

// Of the variant's arm; the baseline's own trials have the baseline in both. No launches where
// there is no sample to go by.
LogTime TimeOf(const PooledTrial& trial) {
  const bool is_baseline = trial.trial->spec.intervention_id == kBaselineId;
  std::map<int, std::vector<double>> launches;
  // As estimates do: beyond the cap throttled pairs count, for the device runs like that.
  for (const Pair& pair : DropThrottled(trial.pairs, EstimateOptions{}.max_dropped_share).pairs) {
    launches[pair.launch].push_back(is_baseline ? (pair.baseline_us + pair.variant_us) / 2
                                                : pair.variant_us);
  }
  LogTime time;
  if (launches.empty()) {
    return time;
  }
  time.num_launches = static_cast<int64_t>(launches.size());
  const auto num_launches = static_cast<double>(launches.size());
  std::vector<double> logs;
  for (const auto& [launch, times] : launches) {
    double mean = 0;
    for (const double us : times) {
      mean += us / static_cast<double>(times.size());
    }
    time.mean_us += mean / num_launches;
    time.num_pairs += static_cast<int64_t>(times.size());
    logs.push_back(std::log(mean));
    if (times.size() > 1) {
      // Relative to the mean a time's variance is its log's, to first order.
      time.pair_variance += Variance(times) / (mean * mean) / static_cast<double>(times.size()) /
                            (num_launches * num_launches);
    }
  }
  time.log_us = std::log(time.mean_us);
  if (logs.size() > 1) {
    time.launch_variance = Variance(logs) / num_launches;
  }
  return time;
}

// Welch and Satterthwaite: variances of two means that need not be equal.
int DegreesOfFreedom(double variance_a, int64_t num_a, double variance_b, int64_t num_b) {
  const double sum = variance_a + variance_b;
  const double parts = variance_a * variance_a / static_cast<double>(num_a - 1) +
                       variance_b * variance_b / static_cast<double>(num_b - 1);
  const double most = static_cast<double>(num_a + num_b - 2);
  return static_cast<int>(std::max(1.0, parts > 0 ? std::min(most, sum * sum / parts) : most));
}

std::optional<Uncertainty> UncertaintyOf(const LogTime& a, const LogTime& b) {
  if (a.num_launches < 2 || b.num_launches < 2) {
    return std::nullopt;
  }
  return Uncertainty{.launch_standard_error = std::sqrt(a.launch_variance + b.launch_variance),
                     .launch_degrees_of_freedom = DegreesOfFreedom(
                         a.launch_variance, a.num_launches, b.launch_variance, b.num_launches),
                     .draw_standard_error = std::sqrt(a.pair_variance + b.pair_variance),
                     .draw_degrees_of_freedom =
                         DegreesOfFreedom(a.pair_variance, std::max<int64_t>(2, a.num_pairs),
                                          b.pair_variance, std::max<int64_t>(2, b.num_pairs))};
}

// A campaign's trials by cell, in the campaign's order.
struct CellKey {
  std::string intervention_id;
  std::string choice;
  std::string point;

  bool operator<(const CellKey& other) const {
    return std::tie(intervention_id, choice, point) <
           std::tie(other.intervention_id, other.choice, other.point);
  }
};

struct Cells {
  std::vector<CellKey> order;
  std::map<CellKey, const PooledTrial*> trials;
};

Cells CellsOf(const CampaignResults& results, const std::vector<PooledTrial>& pooled) {
  Cells cells;
  for (const PooledTrial& trial : pooled) {
    const TrialSpec& spec = trial.trial->spec;
    const auto point = static_cast<size_t>(spec.point_index);
    if (spec.round != 1 || spec.role != TrialRole::kCompare ||
        point >= results.campaign.points.size()) {
      continue;
    }
    const CellKey key{spec.intervention_id, spec.choice, results.campaign.points[point].Label()};
    if (cells.trials.emplace(key, &trial).second) {
      cells.order.push_back(key);
    }
  }
  return cells;
}

const PooledTrial* Find(const Cells& cells, const CellKey& key) {
  const auto found = cells.trials.find(key);
  return found == cells.trials.end() ? nullptr : found->second;
}

std::string MissingText(const char* name, const PooledTrial* trial) {
  if (trial == nullptr) {
    return absl::StrCat(name, " has no such trial");
  }
  return absl::StrCat(name, ": ", ToWord(trial->standing), trial->reason.empty() ? "" : ", ",
                      trial->reason);
}

// B tried it, and it no longer gives a valid time.
bool IsBroken(const PooledTrial& trial) {
  return trial.standing == Standing::kInvalid || trial.standing == Standing::kFailed ||
         trial.standing == Standing::kUnsupported || trial.standing == Standing::kInfeasible;
}

std::optional<double> SpeedupOf(const PooledTrial* trial) {
  if (trial == nullptr || trial->standing != Standing::kMeasured ||
      trial->trial->spec.intervention_id == kBaselineId) {
    return std::nullopt;
  }
  const absl::StatusOr<Estimate> estimate = EstimateSpeedup(trial->pairs, EstimateOptions{});
  return estimate.ok() ? std::optional(estimate->speedup) : std::nullopt;
}

// The cell without its verdict; what the family needs of it goes to `members`.
ComparedCell CompareCell(const CellKey& key, const PooledTrial* a, const PooledTrial* b,
                         std::vector<FamilyMember>& members) {
  ComparedCell cell;
  cell.intervention_id = key.intervention_id;
  cell.choice = key.choice;
  cell.point = key.point;
  cell.speedup_a = SpeedupOf(a);
  cell.speedup_b = SpeedupOf(b);
  const auto time_of = [](const PooledTrial* trial) {
    const bool has = trial != nullptr && trial->standing == Standing::kMeasured;
    return has ? TimeOf(*trial) : LogTime{};
  };
  const LogTime time_a = time_of(a);
  const LogTime time_b = time_of(b);
  const bool has_a = time_a.num_launches > 0;
  const bool has_b = time_b.num_launches > 0;
  if (has_a) cell.a_us = time_a.mean_us;
  if (has_b) cell.b_us = time_b.mean_us;
  if (!has_a || !has_b) {
    cell.reason = !has_a ? MissingText("A", a) : MissingText("B", b);
    cell.is_regression = has_a && b != nullptr && IsBroken(*b);
    return cell;
  }
  FamilyMember member;
  member.log_ratio = time_a.log_us - time_b.log_us;
  member.uncertainty = UncertaintyOf(time_a, time_b);
  if (!member.uncertainty.has_value()) {
    cell.reason = "no interval: it takes two launches of both";
  }
  cell.ratio = SpeedupFigure{.estimate = std::exp(member.log_ratio),
                             .low = {},
                             .high = {},
                             .num_pairs = time_a.num_pairs + time_b.num_pairs,
                             .num_launches = std::min(time_a.num_launches, time_b.num_launches)};
  members.push_back(member);
  return cell;
}

std::string EnvironmentValue(const std::map<std::string, std::string>& environment,
                             const std::string& key) {
  const auto found = environment.find(key);
  return found == environment.end() ? std::string() : found->second;
}

// Keys of the environment that say what was run, not where, and what a difference means.
constexpr std::pair<absl::string_view, absl::string_view> kWorkKeys[] = {
    {"baseline_plan", "the baselines are different plans (degrees, formats or kernels)"},
    {"routing", "tokens are routed differently"},
    {"data", "one ran on zeros"},
};

std::vector<std::string> WarningsOn(const std::vector<EnvironmentDifference>& differences) {
  std::vector<std::string> warnings;
  for (const auto& [key, meaning] : kWorkKeys) {
    for (const EnvironmentDifference& one : differences) {
      if (one.key == key && !one.a.empty() && !one.b.empty()) {
        warnings.push_back(absl::StrCat(meaning, ": ", key, " ", one.a, " in A and ", one.b,
                                        " in B; ratios are of that too"));
      }
    }
  }
  return warnings;
}

std::vector<EnvironmentDifference> DifferencesOf(const std::map<std::string, std::string>& a,
                                                 const std::map<std::string, std::string>& b) {
  std::set<std::string> keys;
  for (const auto* side : {&a, &b}) {
    for (const auto& [key, value] : *side) {
      keys.insert(key);
    }
  }
  std::vector<EnvironmentDifference> differences;
  for (const std::string& key : keys) {
    EnvironmentDifference one{
        .key = key, .a = EnvironmentValue(a, key), .b = EnvironmentValue(b, key)};
    // Every campaign draws its own data.
    if (one.a != one.b && key != "data_seed") {
      differences.push_back(std::move(one));
    }
  }
  return differences;
}

}  // namespace

absl::Status CheckComparable(const ComparedCampaign& a, const ComparedCampaign& b) {
  const std::string model_a = EnvironmentValue(a.environment, "model");
  const std::string model_b = EnvironmentValue(b.environment, "model");
  if (!model_a.empty() && !model_b.empty() && model_a != model_b) {
    return absl::InvalidArgumentError(
        absl::StrCat("A is of the model ", model_a, " and B of ", model_b,
                     ": their steps are different work, and no ratio of them means anything"));
  }
  return absl::OkStatus();
}

CampaignComparison CompareCampaigns(const ComparedCampaign& a, const ComparedCampaign& b) {
  const std::vector<PooledTrial> pooled_a = PoolTrials(a.results);
  const std::vector<PooledTrial> pooled_b = PoolTrials(b.results);
  const Cells cells_a = CellsOf(a.results, pooled_a);
  const Cells cells_b = CellsOf(b.results, pooled_b);
  CampaignComparison comparison;
  const MeasureOptions& measure_a = a.results.campaign.measure;
  const MeasureOptions& measure_b = b.results.campaign.measure;
  comparison.confidence = std::max(measure_a.confidence, measure_b.confidence);
  comparison.min_effect = std::max(measure_a.min_effect, measure_b.min_effect);
  comparison.environment = DifferencesOf(a.environment, b.environment);
  comparison.warnings = WarningsOn(comparison.environment);
  std::vector<FamilyMember> members;
  for (const CellKey& key : cells_a.order) {
    comparison.cells.push_back(CompareCell(key, Find(cells_a, key), Find(cells_b, key), members));
  }
  for (const CellKey& key : cells_b.order) {
    if (Find(cells_a, key) == nullptr) {
      comparison.cells.push_back(CompareCell(key, nullptr, Find(cells_b, key), members));
    }
  }
  const FamilyJudgement judgement =
      JudgeFamily(members, comparison.confidence, comparison.min_effect);
  comparison.interval_confidence = judgement.confidence;
  size_t next = 0;
  for (ComparedCell& cell : comparison.cells) {
    if (cell.ratio.has_value()) {
      const FamilyVerdict& verdict = judgement.verdicts[next++];
      cell.effect = verdict.effect;
      if (verdict.interval.has_value()) {
        cell.ratio->low = verdict.interval->low;
        cell.ratio->high = verdict.interval->high;
      }
      cell.is_regression = verdict.effect == Effect::kSlower;
    }
    comparison.num_regressions += cell.is_regression ? 1 : 0;
  }
  return comparison;
}

}  // namespace lastflop
