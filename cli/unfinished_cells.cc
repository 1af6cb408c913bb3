#include "cli/unfinished_cells.h"

#include <algorithm>

namespace lastflop {
namespace {

bool IsUnfinished(TrialState state) {
  return state == TrialState::kPending || state == TrialState::kRunning ||
         state == TrialState::kCancelled || state == TrialState::kLostOut;
}

}  // namespace

int64_t CountUnfinishedCells(const CampaignComparison& comparison, const CampaignResults& b) {
  return std::count_if(
      comparison.cells.begin(), comparison.cells.end(), [&b](const ComparedCell& cell) {
        return cell.a_us.has_value() && !cell.effect.has_value() && !cell.is_regression &&
               std::any_of(b.trials.begin(), b.trials.end(), [&](const TrialRecord& trial) {
                 const auto point_index = static_cast<size_t>(trial.spec.point_index);
                 return IsUnfinished(trial.state) && trial.spec.round == 1 &&
                        trial.spec.role == TrialRole::kCompare &&
                        point_index < b.campaign.points.size() &&
                        trial.spec.intervention_id == cell.intervention_id &&
                        trial.spec.choice == cell.choice &&
                        b.campaign.points[point_index].Label() == cell.point;
               });
      });
}

}  // namespace lastflop
