// How often trials with the same plan in both arms were called different: reads a finished
// campaign, such as experiments/aa-on-real-kernels.yaml, from a database. docs/measuring.md, "A/A
// on real kernels".
//
//   aa_rate DB [CAMPAIGN]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/plan.h"
#include "common/status_macros.h"
#include "db/campaign_reader.h"
#include "db/database.h"
#include "planner/pool.h"
#include "planner/rank.h"
#include "stats/aa.h"
#include "stats/estimate.h"
#include "stats/judge.h"

namespace lastflop {
namespace {

void PrintSummary(const char* what, const AaSummary& summary) {
  std::printf(
      "%s: %d of %d false (%.2f%%, exact 95%% interval %.2f%% to %.2f%%), %d same, %d "
      "undecided\n",
      what, summary.num_false, summary.num_trials, 100 * summary.false_rate,
      100 * summary.interval.low, 100 * summary.interval.high, summary.num_same,
      summary.num_undecided);
}

struct TrialByTrial {
  std::vector<Effect> effects;  // min_effect 0: any interval without 1 is false.
  std::vector<double> half_widths;
  std::vector<double> noises;
  int num_pairs = 0;
};

absl::StatusOr<TrialByTrial> JudgeEach(const CampaignResults& results) {
  TrialByTrial judged;
  for (const PooledTrial& trial : PoolTrials(results)) {
    const TrialSpec& spec = trial.trial->spec;
    if (trial.pairs.empty() || CanonicalText(spec.baseline) != CanonicalText(spec.variant)) {
      continue;
    }
    EstimateOptions options;
    options.confidence = results.campaign.measure.confidence;
    LASTFLOP_ASSIGN_OR_RETURN(const Estimate estimate, EstimateSpeedup(trial.pairs, options));
    judged.effects.push_back(JudgeEffect(estimate, /*min_effect=*/0));
    if (estimate.interval.has_value()) {
      judged.half_widths.push_back(std::sqrt(estimate.interval->high / estimate.interval->low) - 1);
    }
    judged.noises.push_back(estimate.noise.value_or(0));
    judged.num_pairs += static_cast<int>(trial.pairs.size());
  }
  return judged;
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The words of the report, where all comparisons are one family.
struct EffectsOfReport {
  std::vector<Effect> points;
  std::vector<Effect> mixes;
};

EffectsOfReport ReadEffects(const CampaignResults& results) {
  EffectsOfReport effects;
  for (const RankedIntervention& one : MakeRanking(results).interventions) {
    if (one.effect.has_value()) {
      effects.mixes.push_back(*one.effect);
    }
    for (const PointResult& point : one.points) {
      if (point.effect.has_value()) {
        effects.points.push_back(*point.effect);
      }
    }
  }
  return effects;
}

absl::Status Run(const std::string& path, const std::string& reference) {
  LASTFLOP_ASSIGN_OR_RETURN(Database database, Database::Open(path, Database::Mode::kReadOnly));
  LASTFLOP_ASSIGN_OR_RETURN(const std::string id, ResolveCampaign(database, reference));
  LASTFLOP_ASSIGN_OR_RETURN(const CampaignResults results, ReadCampaign(database, id));
  LASTFLOP_ASSIGN_OR_RETURN(const TrialByTrial judged, JudgeEach(results));
  LASTFLOP_ASSIGN_OR_RETURN(const AaSummary each, SummarizeAa(judged.effects, 0.95));
  const EffectsOfReport effects = ReadEffects(results);
  LASTFLOP_ASSIGN_OR_RETURN(const AaSummary family, SummarizeAa(effects.points, 0.95));
  PrintSummary("each trial alone, min_effect 0", each);
  PrintSummary("as the report says it, one family", family);
  if (!effects.mixes.empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(const AaSummary mixes, SummarizeAa(effects.mixes, 0.95));
    PrintSummary("in the mix, as the ranking says it", mixes);
  }
  std::printf("pairs a trial %.1f, median noise of a pair %.2f%%, median half-width %.2f%%\n",
              static_cast<double>(judged.num_pairs) / each.num_trials,
              100 * MedianOf(judged.noises), 100 * MedianOf(judged.half_widths));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: aa_rate DB [CAMPAIGN]\n";
    return 2;
  }
  const absl::Status status = lastflop::Run(argv[1], argc > 2 ? argv[2] : "");
  if (!status.ok()) {
    std::cerr << "aa_rate: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
