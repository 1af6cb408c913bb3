#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "common/expand_trials.h"

// What the trials of a campaign with rounds say of its course. Trials are all that is stored, and
// so all that is read: an intervention is accepted when the baseline of a next round has its patch.
// docs/adr/rounds.md has the rules.
namespace lastflop {

struct AcceptedIntervention {
  int round = 1;
  std::string id;
  std::vector<std::string> together;  // Ids that it needs and that no earlier round accepted.
  // One per point of the campaign: the choice of its sweep, absent where it is off (per_batch).
  std::vector<std::optional<std::string>> choices;

  bool IsOn(size_t point) const { return point < choices.size() && choices[point].has_value(); }
};

// The accepted ones, by round.
std::vector<AcceptedIntervention> AcceptedIn(const CampaignResults& results);

// The last round that has trials; 1 for a campaign without any.
int LastRound(const CampaignResults& results);

// Whether some trial is of a later round, or for something else than a comparison.
bool HasRounds(const CampaignResults& results);

// Everything that `id` needs, needs of needs included, without itself.
std::vector<std::string> NeedsOf(const Campaign& campaign, const std::string& id);

// nullptr: the campaign has none.
const Intervention* FindIntervention(const Campaign& campaign, const std::string& id);

// The choice of the intervention's sweep whose text this is; an empty one when none is.
Choice ChoiceOf(const Intervention& intervention, const std::string& text);

// Serving once everything accepted before a round is in place.
struct RoundTime {
  std::vector<double> time_shares;  // By point, summing to what the campaign's sum to.
  double remaining = 1;             // Of the time that the same work takes today.
};

// From the campaign's time shares, each over the speedup that the confirmations of what was
// accepted before `round` measured there.
RoundTime TimeOfRound(const CampaignResults& results, int round);

// Ids of everything accepted before `round`, and of what came with it.
std::vector<std::string> AcceptedBefore(const CampaignResults& results, int round);

// The baseline of `round` and its trials of one role, as results of a campaign of one round:
// without the interventions accepted before, with the time shares and the serving that they left.
// Of confirmations that is what a round's winners are judged on.
CampaignResults ResultsOfRound(const CampaignResults& results, int round, TrialRole role);

}  // namespace lastflop
