#include "cli/campaign_exit.h"

#include "common/exit_codes.h"

namespace lastflop {

int ExitCodeOf(const CampaignSummary& summary) {
  switch (summary.state) {
    case CampaignState::kDone:
      return summary.num_lost_out > 0 ? kExitUnfinished : kExitFinished;
    case CampaignState::kBaselineFailed:
      return kExitRegression;
    case CampaignState::kRunning:
    case CampaignState::kCancelled:
    case CampaignState::kOutOfBudget:
      return kExitUnfinished;
  }
  return kExitInternal;
}

}  // namespace lastflop
