#include "planner/rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/trial_speedups.h"

namespace lastflop {
namespace {

bool IsBaseline(const TrialSpec& spec) {
  return spec.intervention_id == kBaselineId && spec.role == TrialRole::kCompare;
}

// The plan that is the baseline of `round` at each point; nullptr where the round has none.
std::vector<const Plan*> BaselinesOf(const CampaignResults& results, int round) {
  std::vector<const Plan*> plans(results.campaign.points.size(), nullptr);
  for (const TrialRecord& trial : results.trials) {
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (IsBaseline(trial.spec) && trial.spec.round == round && point < plans.size()) {
      plans[point] = &trial.spec.variant;
    }
  }
  return plans;
}

// What the round after `round` has in its baseline; absent when there is no such round.
std::optional<AcceptedIntervention> AcceptedInRound(const CampaignResults& results, int round) {
  const std::vector<const Plan*> next = BaselinesOf(results, round + 1);
  std::vector<AcceptedIntervention> confirmed;
  for (const TrialRecord& trial : results.trials) {
    const TrialSpec& spec = trial.spec;
    const auto point = static_cast<size_t>(spec.point_index);
    if (spec.role != TrialRole::kConfirm || spec.round != round || point >= next.size()) {
      continue;
    }
    auto found = std::find_if(confirmed.begin(), confirmed.end(),
                              [&spec](const auto& one) { return one.id == spec.intervention_id; });
    if (found == confirmed.end()) {
      confirmed.push_back({.round = round, .id = spec.intervention_id});
      confirmed.back().choices.resize(next.size());
      found = std::prev(confirmed.end());
    }
    if (next[point] != nullptr && *next[point] == spec.variant && spec.variant != spec.baseline) {
      found->choices[point] = spec.choice;
    }
  }
  // The last one: nothing is confirmed any more once one is accepted.
  const auto accepted =
      std::find_if(confirmed.rbegin(), confirmed.rend(), [](const AcceptedIntervention& one) {
        return std::any_of(one.choices.begin(), one.choices.end(),
                           [](const auto& choice) { return choice.has_value(); });
      });
  return accepted == confirmed.rend() ? std::nullopt : std::optional(*accepted);
}

// GPUs of the round's baseline over those of the campaign's.
double DevicesOfRound(const CampaignResults& results, int round) {
  for (const TrialRecord& trial : results.trials) {
    if (trial.spec.round == round && IsBaseline(trial.spec)) {
      return static_cast<double>(trial.spec.baseline.num_ranks()) /
             static_cast<double>(results.campaign.baseline.num_ranks());
    }
  }
  return 1;
}

}  // namespace

int LastRound(const CampaignResults& results) {
  int round = 1;
  for (const TrialRecord& trial : results.trials) {
    round = std::max(round, trial.spec.round);
  }
  return round;
}

bool HasRounds(const CampaignResults& results) {
  return std::any_of(results.trials.begin(), results.trials.end(), [](const TrialRecord& trial) {
    return trial.spec.round != 1 || trial.spec.role != TrialRole::kCompare;
  });
}

std::vector<AcceptedIntervention> AcceptedIn(const CampaignResults& results) {
  std::vector<AcceptedIntervention> accepted;
  std::set<std::string> ids;
  const int last = LastRound(results);
  for (int round = 1; round < last; ++round) {
    std::optional<AcceptedIntervention> one = AcceptedInRound(results, round);
    if (!one.has_value()) {
      continue;
    }
    for (const std::string& needed : NeedsOf(results.campaign, one->id)) {
      if (ids.insert(needed).second) {
        one->together.push_back(needed);
      }
    }
    ids.insert(one->id);
    accepted.push_back(*std::move(one));
  }
  return accepted;
}

const Intervention* FindIntervention(const Campaign& campaign, const std::string& id) {
  const auto found =
      std::find_if(campaign.interventions.begin(), campaign.interventions.end(),
                   [&id](const Intervention& intervention) { return intervention.id == id; });
  return found == campaign.interventions.end() ? nullptr : &*found;
}

std::vector<std::string> NeedsOf(const Campaign& campaign, const std::string& id) {
  std::vector<std::string> needs;
  std::vector<std::string> open = {id};
  while (!open.empty()) {
    const Intervention* one = FindIntervention(campaign, open.back());
    open.pop_back();
    for (const std::string& needed : one == nullptr ? std::vector<std::string>{} : one->needs) {
      if (needed != id && std::find(needs.begin(), needs.end(), needed) == needs.end()) {
        needs.push_back(needed);
        open.push_back(needed);
      }
    }
  }
  return needs;
}

Choice ChoiceOf(const Intervention& intervention, const std::string& text) {
  for (Choice& choice : ChoicesOf(intervention)) {
    if (ChoiceText(choice) == text) {
      return std::move(choice);
    }
  }
  return {};
}

RoundTime TimeOfRound(const CampaignResults& results, int round) {
  RoundTime time;
  double total_before = 0;
  for (const Point& point : results.campaign.points) {
    time.time_shares.push_back(point.time_share);
    total_before += point.time_share;
  }
  if (round <= 1 || !(total_before > 0)) {
    return time;
  }
  const std::map<std::string, double> speedups = TrialSpeedups(results);
  for (const AcceptedIntervention& accepted : AcceptedIn(results)) {
    for (const TrialRecord& trial : results.trials) {
      const TrialSpec& spec = trial.spec;
      const auto point = static_cast<size_t>(spec.point_index);
      if (accepted.round >= round || spec.role != TrialRole::kConfirm ||
          spec.round != accepted.round || spec.intervention_id != accepted.id ||
          !accepted.IsOn(point)) {
        continue;
      }
      const auto speedup = speedups.find(spec.trial_id);
      if (speedup != speedups.end() && speedup->second > 0) {
        time.time_shares[point] /= speedup->second;
      }
    }
  }
  double total = 0;
  for (const double share : time.time_shares) {
    total += share;
  }
  time.remaining = total / total_before;
  for (double& share : time.time_shares) {
    share /= time.remaining;
  }
  return time;
}

std::vector<std::string> AcceptedBefore(const CampaignResults& results, int round) {
  std::vector<std::string> ids;
  for (const AcceptedIntervention& accepted : AcceptedIn(results)) {
    if (accepted.round < round) {
      ids.push_back(accepted.id);
      ids.insert(ids.end(), accepted.together.begin(), accepted.together.end());
    }
  }
  return ids;
}

CampaignResults ResultsOfRound(const CampaignResults& results, int round, TrialRole role) {
  CampaignResults of_round;
  of_round.campaign = results.campaign;
  of_round.campaign_id = results.campaign_id;
  of_round.state = results.state;
  of_round.created_at_ms = results.created_at_ms;
  of_round.ended_at_ms = results.ended_at_ms;
  of_round.machine = results.machine;
  const RoundTime time = TimeOfRound(results, round);
  for (size_t i = 0; i < time.time_shares.size(); ++i) {
    of_round.campaign.points[i].time_share = time.time_shares[i];
  }
  if (of_round.campaign.economics.gpu_hours.has_value()) {
    *of_round.campaign.economics.gpu_hours *= time.remaining * DevicesOfRound(results, round);
  }
  const std::vector<std::string> before = AcceptedBefore(results, round);
  std::erase_if(of_round.campaign.interventions, [&before](const Intervention& one) {
    return std::find(before.begin(), before.end(), one.id) != before.end();
  });
  std::set<std::string> ids;
  for (const TrialRecord& trial : results.trials) {
    if (trial.spec.round == round && (trial.spec.role == role || IsBaseline(trial.spec))) {
      of_round.trials.push_back(trial);
      ids.insert(trial.spec.trial_id);
    }
  }
  for (const AttemptRecord& attempt : results.attempts) {
    if (ids.count(attempt.result.trial_id) > 0) {
      of_round.attempts.push_back(attempt);
    }
  }
  return of_round;
}

}  // namespace lastflop
