#include "planner/sequence.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/best_set.h"
#include "planner/context.h"
#include "planner/economics.h"
#include "planner/mix.h"

namespace lastflop {
namespace {

struct Placeable {
  const RankedIntervention* ranked = nullptr;  // Outlives this.
  std::vector<double> speedups;                // By point, as they count: 1 where it is off.
  std::vector<double> parts;                   // Of a stack: beyond what it needs.
  double devices = 1;                          // Times as many GPUs, beyond what it needs.
  uint32_t needs = 0;                          // Bits of candidates.
  uint32_t excludes = 0;
  uint32_t clashes = 0;        // Never on at the same point.
  bool needs_missing = false;  // Needs something that is no candidate.
};

// Whether it pays is the search's to say: what it needs may be needed by others too.
bool IsFaster(const RankedIntervention& ranked) {
  return ranked.place.has_value() && ranked.effect == Effect::kFaster && ranked.mix.has_value() &&
         ranked.mix->estimate > 1;
}

bool Pays(const RankedIntervention& ranked) {
  return CountedPerDevice(ranked) > 1 &&
         (!ranked.gain.has_value() || ranked.gain->net_gpu_hours > 0);
}

bool PatchesConflict(const std::vector<FieldSetting>& a, const std::vector<FieldSetting>& b) {
  for (const FieldSetting& left : a) {
    for (const FieldSetting& right : b) {
      if (left.path == right.path && left.value != right.value) {
        return true;
      }
    }
  }
  return false;
}

// At some point, with what their sweeps chose there.
bool PatchesConflict(const RankedIntervention& a, const RankedIntervention& b) {
  for (size_t point = 0; point < std::min(a.points.size(), b.points.size()); ++point) {
    if (PatchesConflict(a.points[point].patch, b.points[point].patch)) {
      return true;
    }
  }
  return false;
}

bool Names(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// What counts at each point: the estimate where it is on, as the ranking's mix has it, and 1 of one
// that is not proven at all.
std::vector<double> SpeedupsOf(const RankedIntervention& ranked) {
  const bool is_proven = ranked.effect == Effect::kFaster || ranked.effect == Effect::kSlower;
  std::vector<double> speedups;
  for (const PointResult& point : ranked.points) {
    const bool is_on = is_proven && point.enabled && point.speedup.has_value();
    speedups.push_back(is_on ? point.speedup->estimate : 1);
  }
  return speedups;
}

// Faster ones by place, then what they need, transitively.
std::vector<Placeable> CollectCandidates(std::span<const RankedIntervention> ranked,
                                         size_t& num_faster) {
  std::vector<Placeable> candidates;
  const auto add = [&candidates](const RankedIntervention& one) {
    candidates.push_back({.ranked = &one, .speedups = SpeedupsOf(one)});
  };
  num_faster = 0;
  for (const RankedIntervention& one : ranked) {
    if (IsFaster(one)) {
      ++num_faster;
      if (candidates.size() < kMostSetCandidates) {
        add(one);
      }
    }
  }
  for (size_t i = 0; i < candidates.size() && candidates.size() < kMostSetCandidates; ++i) {
    for (const RankedIntervention& one : ranked) {
      const bool is_in = std::any_of(candidates.begin(), candidates.end(),
                                     [&one](const Placeable& c) { return c.ranked == &one; });
      if (!is_in && one.place.has_value() && one.mix.has_value() &&
          Names(candidates[i].ranked->needs, one.id) && candidates.size() < kMostSetCandidates) {
        add(one);
      }
    }
  }
  return candidates;
}

// Everything that candidate `index` needs, needs of needs included.
uint32_t NeedsClosure(const std::vector<Placeable>& candidates, size_t index) {
  uint32_t closure = candidates[index].needs;
  for (uint32_t before = 0; before != closure;) {
    before = closure;
    for (size_t j = 0; j < candidates.size(); ++j) {
      closure |= (closure >> j & 1) != 0 ? candidates[j].needs : 0;
    }
  }
  return closure;
}

void LinkNeeds(std::vector<Placeable>& candidates) {
  for (Placeable& candidate : candidates) {
    for (const std::string& id : candidate.ranked->needs) {
      const auto found =
          std::find_if(candidates.begin(), candidates.end(),
                       [&id](const Placeable& other) { return other.ranked->id == id; });
      if (found == candidates.end()) {
        candidate.needs_missing = true;
      } else {
        candidate.needs |= uint32_t{1} << (found - candidates.begin());
      }
    }
  }
}

// Two patches of one field cannot both be in, unless each can be switched: then they take turns. A
// patch may set anew what one that it needs has set, as it was measured.
void LinkCandidates(std::vector<Placeable>& candidates) {
  LinkNeeds(candidates);
  for (size_t i = 0; i < candidates.size(); ++i) {
    Placeable& candidate = candidates[i];
    const RankedIntervention& one = *candidate.ranked;
    for (size_t j = 0; j < candidates.size(); ++j) {
      const RankedIntervention& other = *candidates[j].ranked;
      if (i == j) {
        continue;
      }
      const bool are_together = (NeedsClosure(candidates, i) >> j & 1) != 0 ||
                                (NeedsClosure(candidates, j) >> i & 1) != 0;
      // What takes more GPUs takes them at every point, on or off.
      const bool are_switched = one.switchable == Switchable::kPerBatch &&
                                other.switchable == Switchable::kPerBatch &&
                                one.devices_text.empty() && other.devices_text.empty();
      if (Names(one.excludes, other.id) || Names(other.excludes, one.id)) {
        candidate.excludes |= uint32_t{1} << j;
      } else if (!are_together && PatchesConflict(one, other)) {
        (are_switched ? candidate.clashes : candidate.excludes) |= uint32_t{1} << j;
      }
    }
  }
}

// `speedups` over the parts of everything that candidate `index` needs, needs of needs included.
void SetParts(std::vector<Placeable>& candidates, size_t index, uint32_t& done) {
  done |= uint32_t{1} << index;
  const uint32_t closure = NeedsClosure(candidates, index);
  std::vector<double> parts = candidates[index].speedups;
  double devices = candidates[index].ranked->devices_ratio;
  for (size_t j = 0; j < candidates.size(); ++j) {
    if (j != index && (closure >> j & 1) != 0) {
      if ((done >> j & 1) == 0) {
        SetParts(candidates, j, done);
      }
      for (size_t point = 0; point < parts.size() && !candidates[j].parts.empty(); ++point) {
        parts[point] /= candidates[j].parts[point];
      }
      devices /= candidates[j].devices;
    }
  }
  candidates[index].parts = std::move(parts);
  candidates[index].devices = devices;
}

SetRules RulesOf(const Campaign& campaign) {
  SetRules rules;
  for (const Point& point : campaign.points) {
    rules.time_shares.push_back(point.time_share);
  }
  rules.worth = campaign.economics.gpu_hours.value_or(1);
  rules.effort_hours = campaign.budget.effort_hours;
  return rules;
}

std::vector<SetCandidate> ToSearch(const std::vector<Placeable>& candidates,
                                   const Campaign& campaign) {
  std::vector<SetCandidate> searched;
  for (const Placeable& one : candidates) {
    SetCandidate candidate;
    for (const double part : one.parts) {
      // A part works only where what it needs does.
      candidate.time_factors.push_back(
          1 - ExpectedSaving(part / one.devices, one.ranked->whole_chance));
    }
    candidate.cost = campaign.economics.gpu_hours.has_value()
                         ? CostGpuHours(one.ranked->effort, campaign.economics)
                         : 0;
    candidate.effort_hours = one.ranked->effort.likely_hours;
    candidate.needs = one.needs;
    candidate.excludes = one.excludes;
    candidate.clashes = one.clashes;
    searched.push_back(std::move(candidate));
  }
  return searched;
}

// What is needed and is no candidate rules out everything above it.
void DropWithoutNeeds(std::vector<Placeable>& candidates) {
  while (true) {
    const auto missing =
        std::find_if(candidates.begin(), candidates.end(),
                     [](const Placeable& candidate) { return candidate.needs_missing; });
    if (missing == candidates.end()) {
      return;
    }
    const std::string id = missing->ranked->id;
    candidates.erase(missing);
    for (Placeable& candidate : candidates) {
      candidate.needs_missing |= Names(candidate.ranked->needs, id);
    }
  }
}

// Where a step is on, when that is not everywhere.
std::vector<std::string> OnAt(const Placeable& candidate, uint32_t bit, const BestSet& best) {
  std::vector<std::string> labels;
  for (size_t point = 0; point < best.on.size(); ++point) {
    if ((best.on[point] & bit) != 0 && candidate.ranked->points[point].enabled) {
      labels.push_back(candidate.ranked->points[point].label);
    }
  }
  return labels.size() == best.on.size() ? std::vector<std::string>{} : labels;
}

// The chosen in order of place, each after what it needs. Needs in a circle keep order of place.
std::vector<const Placeable*> BuildOrder(const std::vector<Placeable>& candidates, uint32_t set) {
  std::vector<size_t> waiting;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((set >> i & 1) != 0) {
      waiting.push_back(i);
    }
  }
  std::sort(waiting.begin(), waiting.end(), [&candidates](size_t a, size_t b) {
    return *candidates[a].ranked->place < *candidates[b].ranked->place;
  });
  uint32_t built = 0;
  std::vector<const Placeable*> order;
  while (!waiting.empty()) {
    auto next = std::find_if(waiting.begin(), waiting.end(),
                             [&](size_t i) { return (candidates[i].needs & ~built) == 0; });
    if (next == waiting.end()) {
      next = waiting.begin();
    }
    built |= uint32_t{1} << *next;
    order.push_back(&candidates[*next]);
    waiting.erase(next);
  }
  return order;
}

// Why nothing is recommended.
std::string EmptyNote(std::span<const RankedIntervention> ranked, bool is_predicted) {
  const auto any = [&ranked](const auto& is) {
    return std::any_of(ranked.begin(), ranked.end(), is);
  };
  if (!any(IsFaster)) {
    return is_predicted ? "nothing is predicted to be faster" : "nothing measured is proven faster";
  }
  const std::string faster = is_predicted ? "what is predicted faster" : "what is proven faster";
  return absl::StrCat(faster, any([](const auto& one) { return IsFaster(one) && Pays(one); })
                                  ? " does not fit budget.effort or its needs"
                                  : " is not worth its effort and the GPUs it takes");
}

std::string Note(size_t num_faster, size_t num_candidates, bool has_budget, double budget_hours) {
  std::string note = "the set with the largest expected gain";
  if (has_budget) {
    absl::StrAppendFormat(&note, " within %g engineer-hours", budget_hours);
  }
  if (num_faster > num_candidates) {
    absl::StrAppend(&note, ", of the first ", num_candidates, " of ", num_faster, " by rank");
  }
  return absl::StrCat(
      note,
      "; the stack is the product of the single speedups at each point, then mixed by time "
      "(modelled, not measured together)");
}

}  // namespace

Sequence RecommendSequence(std::span<const RankedIntervention> ranked, const Campaign& campaign) {
  size_t num_faster = 0;
  std::vector<Placeable> candidates = CollectCandidates(ranked, num_faster);
  const size_t num_looked_at = std::min(num_faster, kMostSetCandidates);
  LinkCandidates(candidates);
  DropWithoutNeeds(candidates);
  for (Placeable& candidate : candidates) {
    candidate.needs = candidate.excludes = candidate.clashes = 0;
  }
  LinkCandidates(candidates);  // Indices have moved.
  uint32_t done = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((done >> i & 1) == 0) {
      SetParts(candidates, i, done);
    }
  }
  const SetRules rules = RulesOf(campaign);
  const BestSet best = FindBestSet(ToSearch(candidates, campaign), rules);
  Sequence sequence;
  sequence.note = Note(num_faster, num_looked_at, campaign.budget.effort_hours.has_value(),
                       campaign.budget.effort_hours.value_or(0));
  double effort_hours = 0;
  std::vector<double> stack(rules.time_shares.size(), 1.0);
  for (const Placeable* one : BuildOrder(candidates, best.set)) {
    const uint32_t bit = uint32_t{1} << (one - candidates.data());
    std::vector<MixPart> mix;
    for (size_t point = 0; point < stack.size(); ++point) {
      stack[point] *= (best.on[point] & bit) != 0 ? one->parts[point] : 1;
      mix.push_back({rules.time_shares[point], {.estimate = stack[point]}});
    }
    const std::optional<SpeedupFigure> stacked = MixSpeedup(mix);
    SequenceStep step;
    step.id = one->ranked->id;
    step.title = one->ranked->title;
    step.effort_hours = one->ranked->effort.likely_hours;
    step.cumulative_effort_hours = effort_hours += step.effort_hours;
    step.speedup = one->ranked->mix->estimate;
    step.expected_stack = stacked.has_value() ? stacked->estimate : 1;
    step.on_at = OnAt(*one, bit, best);
    sequence.steps.push_back(std::move(step));
  }
  if (sequence.steps.empty()) {
    sequence.note = EmptyNote(ranked, campaign.fidelity == Fidelity::kPredicted);
  } else if (campaign.economics.gpu_hours.has_value()) {
    sequence.net_gpu_hours = best.gain;
  }
  return sequence;
}

}  // namespace lastflop
