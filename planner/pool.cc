#include "planner/pool.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {
namespace {

// Attempts by the id of their trial.
using AttemptsByTrial = std::unordered_map<std::string, std::vector<const AttemptRecord*>>;

bool IsTime(double us) { return std::isfinite(us) && us > 0; }

void SetStanding(PooledTrial& pooled, Standing standing, std::string reason) {
  pooled.standing = standing;
  pooled.reason = std::move(reason);
}

// The failure that speaks for a trial: the last authoritative one, else the last one at all (a
// child that dies reports nothing itself).
const AttemptRecord* LastFailure(const std::vector<const AttemptRecord*>& attempts) {
  const AttemptRecord* last = nullptr;
  for (const AttemptRecord* attempt : attempts) {
    if (attempt->result.failure.has_value() &&
        (last == nullptr || attempt->authoritative || !last->authoritative)) {
      last = attempt;
    }
  }
  return last;
}

// A finding of the plan itself, which no other launch can change.
bool IsFinal(FailureKind kind) {
  const Standing standing = StandingOf(kind);
  return standing == Standing::kUnsupported || standing == Standing::kInfeasible ||
         standing == Standing::kInvalid;
}

std::string FailureText(const Failure& failure) {
  // Most messages of a gang name the rank themselves.
  const bool is_named = absl::StrContains(failure.message, absl::StrCat("rank ", failure.rank));
  const std::string rank =
      failure.rank >= 0 && !is_named ? absl::StrCat(" (rank ", failure.rank, ")") : "";
  if (failure.message.empty()) {
    return absl::StrCat(ToWord(failure.kind), rank);
  }
  return absl::StrCat(failure.message, rank);
}

// Whether every sample and check of a successful attempt holds; else the standing says why not.
bool CheckAttempt(const AttemptResult& result, PooledTrial& pooled) {
  for (const CheckResult* check : {&result.check_before, &result.check_after}) {
    if (!check->ran) {
      SetStanding(pooled, Standing::kInvalid, "its result was not checked");
      return false;
    }
    if (!check->ok) {
      SetStanding(
          pooled, Standing::kInvalid,
          absl::StrFormat("wrong result: error %.3g, tolerance %.3g%s%s", check->max_error,
                          check->tolerance, check->detail.empty() ? "" : ", ", check->detail));
      return false;
    }
  }
  for (const PairSample& sample : result.samples) {
    const bool baseline_is_time = IsTime(sample.pair.baseline_us);
    if (!baseline_is_time || !IsTime(sample.pair.variant_us)) {
      SetStanding(
          pooled, Standing::kInvalid,
          absl::StrFormat("launch %d, draw %d: the %s took %g us, which is no time", result.launch,
                          sample.pair.draw, baseline_is_time ? "variant" : "baseline",
                          baseline_is_time ? sample.pair.variant_us : sample.pair.baseline_us));
      return false;
    }
  }
  return true;
}

void AddSamples(const AttemptResult& result, PooledTrial& pooled) {
  for (const PairSample& sample : result.samples) {
    pooled.pairs.push_back(sample.pair);
  }
  // kFull, kShard, kPredicted: the later, the less a figure stands for.
  pooled.fidelity = std::max(pooled.fidelity, result.fidelity);
  for (const CheckResult* check : {&result.check_before, &result.check_after}) {
    pooled.error = std::max(pooled.error.value_or(0), check->error_to_baseline);
    pooled.changed_routes = std::max(pooled.changed_routes.value_or(0), check->changed_routes);
  }
}

void AddRouting(PooledTrial& pooled) {
  double unique_experts = 0;
  double imbalance = 0;
  double count = 0;
  for (const AttemptRecord* attempt : pooled.attempts) {
    if (attempt->result.failure.has_value()) {
      continue;
    }
    for (const PairSample& sample : attempt->result.samples) {
      unique_experts += sample.unique_experts;
      imbalance += sample.imbalance;
      ++count;
    }
  }
  if (count > 0 && std::isfinite(unique_experts) && std::isfinite(imbalance)) {
    pooled.unique_experts = unique_experts / count;
    pooled.imbalance = imbalance / count;
  }
}

// Attempts that measured another build of a plugin than the latest one did are attempts at another
// kernel: leaves them out and counts them.
void LeaveOutOtherBuilds(PooledTrial& pooled) {
  for (const Plan* plan : {&pooled.trial->spec.baseline, &pooled.trial->spec.variant}) {
    if (plan->moe.kernel != MoeKernel::kPlugin) {
      continue;
    }
    const std::string key = absl::StrCat("plugin:", plan->moe.plugin);
    const auto build_of = [&key](const AttemptRecord* attempt) {
      const auto found = attempt->result.environment.find(key);
      return found == attempt->result.environment.end() ? std::string() : found->second;
    };
    std::string latest;
    for (const AttemptRecord* attempt : pooled.attempts) {
      const std::string build = build_of(attempt);
      latest = build.empty() ? latest : build;
    }
    pooled.num_other_builds +=
        static_cast<int>(std::erase_if(pooled.attempts, [&](const AttemptRecord* attempt) {
          const std::string build = build_of(attempt);
          return !build.empty() && build != latest;
        }));
  }
}

void PoolDone(PooledTrial& pooled) {
  for (const AttemptRecord* attempt : pooled.attempts) {
    const AttemptResult& result = attempt->result;
    if (result.failure.has_value()) {
      if (IsFinal(result.failure->kind)) {
        pooled.pairs.clear();
        SetStanding(pooled, StandingOf(result.failure->kind), FailureText(*result.failure));
        return;
      }
      continue;  // A later attempt at the same launch took its place.
    }
    if (!CheckAttempt(result, pooled)) {
      pooled.pairs.clear();
      return;
    }
    AddSamples(result, pooled);
  }
  if (pooled.pairs.empty()) {
    const AttemptRecord* failure = LastFailure(pooled.attempts);
    SetStanding(pooled, Standing::kFailed,
                failure != nullptr ? FailureText(*failure->result.failure) : "no samples");
    return;
  }
  pooled.standing = Standing::kMeasured;
  AddRouting(pooled);
}

void PoolUnfinished(const std::vector<const AttemptRecord*>& all, PooledTrial& pooled) {
  const TrialRecord& trial = *pooled.trial;
  if (trial.state != TrialState::kFailed) {
    SetStanding(pooled, Standing::kNotRun,
                trial.reason.empty() ? std::string(ToWord(trial.state))
                                     : absl::StrCat(ToWord(trial.state), ": ", trial.reason));
    return;
  }
  const AttemptRecord* failure = LastFailure(all);
  if (failure == nullptr) {
    SetStanding(pooled, Standing::kFailed, trial.reason.empty() ? "failed" : trial.reason);
    return;
  }
  const Standing standing = StandingOf(failure->result.failure->kind);
  // The coordinator's own words count attempts ("signal 9, 3 attempts"); a finding speaks itself.
  const bool use_reason = standing == Standing::kFailed && !trial.reason.empty();
  SetStanding(pooled, standing, use_reason ? trial.reason : FailureText(*failure->result.failure));
}

PooledTrial Pool(const TrialRecord& trial, const std::vector<const AttemptRecord*>& all) {
  PooledTrial pooled;
  pooled.trial = &trial;
  for (const AttemptRecord* attempt : all) {
    if (attempt->authoritative) {
      pooled.attempts.push_back(attempt);
    }
  }
  LeaveOutOtherBuilds(pooled);
  if (trial.spec.settled.has_value()) {
    SetStanding(pooled, *trial.spec.settled, trial.spec.settled_reason);
  } else if (trial.failure.has_value() &&
             (trial.state == TrialState::kDone || trial.state == TrialState::kFailed)) {
    // What the coordinator decided stands, also where no attempt could say it.
    SetStanding(pooled, StandingOf(trial.failure->kind),
                trial.reason.empty() ? FailureText(*trial.failure) : trial.reason);
  } else if (trial.state == TrialState::kDone) {
    PoolDone(pooled);
  } else {
    PoolUnfinished(all, pooled);
  }
  return pooled;
}

}  // namespace

Standing StandingOf(FailureKind kind) {
  switch (kind) {
    case FailureKind::kUnsupported:
      return Standing::kUnsupported;
    case FailureKind::kInfeasible:
    case FailureKind::kOutOfMemory:
      return Standing::kInfeasible;
    case FailureKind::kWrongResult:
    case FailureKind::kImpossible:
      return Standing::kInvalid;
    case FailureKind::kCrashed:
    case FailureKind::kTimeout:
    case FailureKind::kDeviceFault:
    case FailureKind::kRankLost:
    case FailureKind::kInternal:
      return Standing::kFailed;
  }
  return Standing::kFailed;
}

std::vector<PooledTrial> PoolTrials(const CampaignResults& results) {
  AttemptsByTrial attempts;
  for (const AttemptRecord& attempt : results.attempts) {
    attempts[attempt.result.trial_id].push_back(&attempt);
  }
  for (auto& [trial_id, list] : attempts) {
    std::stable_sort(list.begin(), list.end(), [](const AttemptRecord* a, const AttemptRecord* b) {
      if (a->started_at_ms != b->started_at_ms) return a->started_at_ms < b->started_at_ms;
      return a->result.launch < b->result.launch;
    });
  }
  std::vector<PooledTrial> pooled;
  pooled.reserve(results.trials.size());
  for (const TrialRecord& trial : results.trials) {
    const auto found = attempts.find(trial.spec.trial_id);
    pooled.push_back(
        Pool(trial, found == attempts.end() ? std::vector<const AttemptRecord*>{} : found->second));
    // Whatever a worker wrote: one rank that stands for several is no full measurement.
    const bool has_ranks =
        std::max(trial.spec.baseline.num_ranks(), trial.spec.variant.num_ranks()) > 1;
    if (results.campaign.fidelity == Fidelity::kShard && has_ranks) {
      pooled.back().fidelity = std::max(pooled.back().fidelity, Fidelity::kShard);
    }
  }
  return pooled;
}

}  // namespace lastflop
