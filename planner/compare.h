#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/campaign_results.h"
#include "planner/ranking.h"

// Two campaigns side by side: builds, machines or days.
namespace lastflop {

// One cell of both campaigns: an intervention's plan, or the baseline's, at one point.
struct ComparedCell {
  std::string intervention_id;  // kBaselineId: the baseline itself.
  std::string choice;
  std::string point;
  std::optional<double> a_us;  // Mean step, launches weighing the same.
  std::optional<double> b_us;
  // a_us / b_us: above 1, B is faster. The launches of the two are independent; the interval is the
  // family's.
  std::optional<SpeedupFigure> ratio;
  std::optional<Effect> effect;     // Of B against A. Absent without a ratio.
  std::optional<double> speedup_a;  // Against its own baseline, pair by pair.
  std::optional<double> speedup_b;
  bool is_regression = false;  // Proven slower, or measured in A and no longer possible in B.
  std::string reason;          // Why there is no ratio, or no interval.
};

struct EnvironmentDifference {
  std::string key;
  std::string a;  // "" where that campaign does not say.
  std::string b;
};

struct CampaignComparison {
  std::vector<ComparedCell> cells;  // The baseline's first, then in A's order, then B's own.
  std::vector<EnvironmentDifference> environment;
  // What makes a ratio more than one of builds, machines or days: another plan, routing or data.
  std::vector<std::string> warnings;
  double confidence = 0.95;           // Of all verdicts together.
  double interval_confidence = 0.95;  // Of each interval.
  double min_effect = 0.01;
  int64_t num_regressions = 0;
};

// What is compared of a campaign.
struct ComparedCampaign {
  CampaignResults results;
  std::map<std::string, std::string> environment;  // Ranking::environment.
};

// InvalidArgument: campaigns of different models, whose steps are different work.
absl::Status CheckComparable(const ComparedCampaign& a, const ComparedCampaign& b);

// Compares cell by cell what both measured; cells meet by intervention, choice and the point's
// label. Verdicts are one family at the stricter confidence and the larger minimum effect of the
// two.
CampaignComparison CompareCampaigns(const ComparedCampaign& a, const ComparedCampaign& b);

}  // namespace lastflop
