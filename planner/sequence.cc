#include "planner/sequence.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/context.h"
#include "planner/economics.h"

namespace lastflop {
namespace {

constexpr size_t kMostCandidates = 20;  // 2^20 sets take well under a second.

struct Candidate {
  const RankedIntervention* ranked = nullptr;
  double speedup = 1;  // That counts: 1 when none is proven.
  double part = 1;     // Of a stack: beyond what it needs.
  uint32_t needs = 0;  // Bits of candidates.
  uint32_t excludes = 0;
  bool needs_missing = false;  // Needs something that is no candidate.
};

bool IsFaster(const RankedIntervention& ranked) {
  return ranked.place.has_value() && ranked.effect == Effect::kFaster && ranked.mix.has_value() &&
         ranked.mix->estimate > 1 && (!ranked.gain.has_value() || ranked.gain->net_gpu_hours > 0);
}

bool SetsConflict(const RankedIntervention& a, const RankedIntervention& b) {
  for (const FieldSetting& left : a.set) {
    for (const FieldSetting& right : b.set) {
      if (left.path == right.path && left.value != right.value) {
        return true;
      }
    }
  }
  return false;
}

bool Names(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Faster ones by place, then what they need, transitively.
std::vector<Candidate> CollectCandidates(std::span<const RankedIntervention> ranked,
                                         size_t& num_faster) {
  std::vector<Candidate> candidates;
  const auto add = [&candidates](const RankedIntervention& one, double speedup) {
    Candidate candidate;
    candidate.ranked = &one;
    candidate.speedup = speedup;
    candidates.push_back(candidate);
  };
  num_faster = 0;
  for (const RankedIntervention& one : ranked) {
    if (IsFaster(one)) {
      ++num_faster;
      if (candidates.size() < kMostCandidates) {
        add(one, one.mix->estimate);
      }
    }
  }
  for (size_t i = 0; i < candidates.size() && candidates.size() < kMostCandidates; ++i) {
    for (const RankedIntervention& one : ranked) {
      const bool is_in = std::any_of(candidates.begin(), candidates.end(),
                                     [&one](const Candidate& c) { return c.ranked == &one; });
      if (!is_in && one.place.has_value() && one.mix.has_value() &&
          Names(candidates[i].ranked->needs, one.id) && candidates.size() < kMostCandidates) {
        add(one, CountedSpeedup(one));
      }
    }
  }
  return candidates;
}

void LinkCandidates(std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    for (const std::string& id : candidate.ranked->needs) {
      const auto found =
          std::find_if(candidates.begin(), candidates.end(),
                       [&id](const Candidate& other) { return other.ranked->id == id; });
      if (found == candidates.end()) {
        candidate.needs_missing = true;
      } else {
        candidate.needs |= uint32_t{1} << (found - candidates.begin());
      }
    }
    for (size_t j = 0; j < candidates.size(); ++j) {
      const RankedIntervention& other = *candidates[j].ranked;
      if (candidate.ranked != &other &&
          (Names(candidate.ranked->excludes, other.id) ||
           Names(other.excludes, candidate.ranked->id) || SetsConflict(*candidate.ranked, other))) {
        candidate.excludes |= uint32_t{1} << j;
      }
    }
  }
}

// `speedup` over the parts of everything that candidate `index` needs, needs of needs included.
void SetPart(std::vector<Candidate>& candidates, size_t index, uint32_t& done) {
  done |= uint32_t{1} << index;
  uint32_t closure = candidates[index].needs;
  for (uint32_t before = 0; before != closure;) {
    before = closure;
    for (size_t j = 0; j < candidates.size(); ++j) {
      closure |= (closure >> j & 1) != 0 ? candidates[j].needs : 0;
    }
  }
  double below = 1;
  for (size_t j = 0; j < candidates.size(); ++j) {
    if (j != index && (closure >> j & 1) != 0) {
      if ((done >> j & 1) == 0) {
        SetPart(candidates, j, done);
      }
      below *= candidates[j].part;
    }
  }
  candidates[index].part = candidates[index].speedup / below;
}

struct Score {
  double gain = 0;  // GPU-hours, or the saved share without economics.
  double effort_hours = 0;
};

// False when the set breaks a rule or the budget.
bool ScoreSet(const std::vector<Candidate>& candidates, uint32_t set, const Campaign& campaign,
              Score& score) {
  double time = 1;
  double cost = 0;
  score = {};
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((set >> i & 1) == 0) {
      continue;
    }
    const Candidate& one = candidates[i];
    if (one.needs_missing || (one.needs & ~set) != 0 || (one.excludes & set) != 0) {
      return false;
    }
    time *= 1 - ExpectedSaving(one.part, one.ranked->risk);
    cost += CostGpuHours(one.ranked->effort, campaign.economics);
    score.effort_hours += one.ranked->effort.likely_hours;
  }
  if (campaign.budget.effort_hours.has_value() &&
      score.effort_hours > *campaign.budget.effort_hours) {
    return false;
  }
  score.gain = 1 - time;
  if (campaign.economics.gpu_hours.has_value()) {
    score.gain = *campaign.economics.gpu_hours * (1 - time) - cost;
  }
  return true;
}

uint32_t BestSet(const std::vector<Candidate>& candidates, const Campaign& campaign) {
  uint32_t best = 0;
  Score best_score;
  for (uint32_t set = 1; set < uint32_t{1} << candidates.size(); ++set) {
    Score score;
    if (ScoreSet(candidates, set, campaign, score) &&
        (score.gain > best_score.gain || (score.gain == best_score.gain && score.gain > 0 &&
                                          score.effort_hours < best_score.effort_hours))) {
      best = set;
      best_score = score;
    }
  }
  return best;
}

// The chosen in order of place, each after what it needs. Needs in a circle keep order of place.
std::vector<const Candidate*> BuildOrder(const std::vector<Candidate>& candidates, uint32_t set) {
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
  std::vector<const Candidate*> order;
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

std::string Note(size_t num_faster, size_t num_candidates, bool has_budget, double budget_hours) {
  if (num_faster == 0) {
    return "nothing measured is proven faster and worth its effort";
  }
  std::string note = "the set with the largest expected gain";
  if (has_budget) {
    absl::StrAppendFormat(&note, " within %g engineer-hours", budget_hours);
  }
  if (num_faster > num_candidates) {
    absl::StrAppend(&note, ", of the first ", num_candidates, " of ", num_faster, " by rank");
  }
  return absl::StrCat(
      note, "; the stack is the product of the single speedups (modelled, not measured together)");
}

}  // namespace

Sequence RecommendSequence(std::span<const RankedIntervention> ranked, const Campaign& campaign) {
  size_t num_faster = 0;
  std::vector<Candidate> candidates = CollectCandidates(ranked, num_faster);
  LinkCandidates(candidates);
  uint32_t done = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if ((done >> i & 1) == 0) {
      SetPart(candidates, i, done);
    }
  }
  Sequence sequence;
  sequence.note =
      Note(num_faster, std::min(num_faster, kMostCandidates),
           campaign.budget.effort_hours.has_value(), campaign.budget.effort_hours.value_or(0));
  double effort_hours = 0;
  double stack = 1;
  for (const Candidate* one : BuildOrder(candidates, BestSet(candidates, campaign))) {
    SequenceStep step;
    step.id = one->ranked->id;
    step.title = one->ranked->title;
    step.effort_hours = one->ranked->effort.likely_hours;
    step.cumulative_effort_hours = effort_hours += step.effort_hours;
    step.speedup = one->ranked->mix->estimate;
    step.expected_stack = stack *= one->part;
    sequence.steps.push_back(std::move(step));
  }
  if (num_faster > 0 && sequence.steps.empty()) {
    sequence.note = "what is proven faster does not fit budget.effort or its needs";
  }
  return sequence;
}

}  // namespace lastflop
