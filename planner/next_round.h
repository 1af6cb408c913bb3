#pragma once

#include <string>
#include <vector>

#include "common/campaign_results.h"

// What a campaign with rounds does when all of its trials have ended. docs/adr/rounds.md has the
// rules.
namespace lastflop {

struct NextRound {
  std::vector<TrialSpec> trials;  // To be added to the campaign; none: it is over.
  std::string message;            // What was decided, and on what; "" for a campaign of one round.
};

// Pure: the same results give the same answer, whoever asks after whatever restart. In turn:
//
// - The best of the round, by the campaign's own ranking, of what is proven faster, worth its
//   effort and within budget.effort, is measured again on fresh seeds: its confirmation takes the
//   place of what it was selected on, which may make another one the best.
// - One that is the best with its confirmation is accepted: the next round's baseline has its patch
//   (where it is on), and the others are compared with that, patches upon patches. What cannot come
//   on top of it is there with the reason, to be reported.
// - When a round accepts nothing, or the last of budget.rounds is over: the stack of all that was
//   accepted against the campaign's baseline, and against all but one of them.
//
// `results` has no open trial.
NextRound DecideNextRound(const CampaignResults& results);

}  // namespace lastflop
