#include "worker/attempt_runner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/relative_distance.h"
#include "common/status_macros.h"
#include "worker/agreement.h"
#include "worker/arm_order.h"
#include "worker/host_load.h"

namespace lastflop {
namespace {

// Draws of an attempt: the seed's low bits above a pair index that no attempt reaches.
constexpr int kPairIndexBits = 24;
constexpr int64_t kCheckBeforePair = (int64_t{1} << kPairIndexBits) - 1;
constexpr int64_t kCheckAfterPair = kCheckBeforePair - 1;
constexpr int64_t kWarmUpPair = kCheckBeforePair - 2;
constexpr int kBreakdownSamples = 5;
constexpr int kClaimBreakdownSamples = 3;  // One in each launch, for a claim about a part.
constexpr int64_t kProgressEveryPairs = 8;

int64_t DrawOf(const AttemptSpec& attempt, int64_t pair_index) {
  return static_cast<int64_t>((attempt.seed & 0x7F'FFFF'FFFF) << kPairIndexBits) | pair_index;
}

// The plan as far as a point uses it: only decode has steps that could be drafted.
Plan PlanAt(const Plan& plan, const Point& point) {
  Plan at = plan;
  if (point.phase == Phase::kPrefill) {
    at.speculative = Speculative{};
  }
  return at;
}

// One attempt on one rank, stage by stage; a stage returns false once there is a failure.
class AttemptRun {
 public:
  AttemptRun(Backend& backend, Gang& gang, Agreement agreement, const AttemptInputs& inputs)
      : backend_(backend),
        gang_(gang),
        agreement_(std::move(agreement)),
        inputs_(inputs),
        baseline_plan_(PlanAt(spec().baseline, point())),
        variant_plan_(PlanAt(spec().variant, point())) {}

  AttemptResult Run() {
    const double started_s = inputs_.now_s();
    if (Prepare() && Check(kCheckBeforePair, "before timing", result_.check_before) && WarmUp()) {
      result_.setup_s = inputs_.now_s() - started_s;
      if (Sample() && Check(kCheckAfterPair, "after timing", result_.check_after)) {
        Breakdown();
      }
    }
    Describe();
    return Finished();
  }

 private:
  const AttemptSpec& spec() const { return inputs_.attempt; }
  const Point& point() const {
    return inputs_.campaign.points[static_cast<size_t>(spec().point_index)];
  }

  bool Agreed(const absl::Status& status, absl::string_view stage) {
    result_.failure = agreement_.Agree(status);
    if (result_.failure.has_value() && !stage.empty()) {
      result_.failure->message = absl::StrCat(stage, ": ", result_.failure->message);
    }
    return !result_.failure.has_value();
  }

  bool Fail(FailureKind kind, std::string message) {
    result_.failure = Failure{.kind = kind, .message = std::move(message), .rank = -1};
    return false;
  }

  bool PrepareArm(const Plan& plan, absl::string_view stage, std::unique_ptr<Arm>& arm) {
    absl::StatusOr<std::unique_ptr<Arm>> made = backend_.Prepare(plan, point(), gang_);
    if (!Agreed(made.status(), stage)) {
      return false;
    }
    arm = *std::move(made);
    return true;
  }

  bool Prepare() {
    inputs_.progress("weights", 0, 0);
    // The variant first: what it cannot honour is said before the time of the rest is spent.
    const absl::Status started =
        backend_.StartAttempt(baseline_plan_, variant_plan_, point(), gang_);
    return Agreed(started, "") && PrepareArm(variant_plan_, "", variant_) &&
           PrepareArm(baseline_plan_, "baseline", baseline_);
  }

  // The largest of all ranks' values; a broken gang leaves the failure.
  bool MaxOverRanks(double value, double& max) {
    const absl::StatusOr<std::vector<double>> all = gang_.AllGather(value);
    if (!all.ok()) {
      const absl::Status& lost = all.status();
      return Fail(KindOf(lost), std::string(lost.message()));
    }
    max = *std::max_element(all->begin(), all->end());
    return true;
  }

  bool CheckArm(Arm& arm, int64_t draw, absl::string_view name, absl::string_view when,
                CheckResult& check) {
    absl::StatusOr<CheckResult> made = arm.Check(draw);
    absl::Status status = made.status();
    if (made.ok()) {
      check = *made;
      if (!check.ok) {
        status = absl::FailedPreconditionError(check.detail);
        // What was not written at all is infinitely wrong, and reports take numbers.
        if (!std::isfinite(check.max_error)) {
          check.max_error = std::numeric_limits<double>::max();
        }
      }
    }
    return Agreed(status, absl::StrCat(name, " checked ", when));
  }

  bool Check(int64_t pair_index, absl::string_view when, CheckResult& check) {
    inputs_.progress("checking", static_cast<int64_t>(result_.samples.size()), 0);
    const int64_t draw = DrawOf(spec(), pair_index);
    CheckResult of_baseline;
    if (!CheckArm(*baseline_, draw, "baseline", when, of_baseline)) {
      return false;
    }
    const absl::StatusOr<std::vector<float>> baseline_out = baseline_->Output();
    const absl::StatusOr<std::vector<int32_t>> baseline_routes = baseline_->ChosenExperts();
    if (!CheckArm(*variant_, draw, "variant", when, check)) {
      return false;
    }
    const absl::Status compared = CompareToBaseline(baseline_out, baseline_routes, check);
    if (!Agreed(compared, "comparing the arms")) {
      return false;
    }
    return MaxOverRanks(check.error_to_baseline, check.error_to_baseline) &&
           MaxOverRanks(check.changed_routes, check.changed_routes) &&
           MaxOverRanks(check.max_error, check.max_error);
  }

  absl::Status CompareToBaseline(const absl::StatusOr<std::vector<float>>& baseline_out,
                                 const absl::StatusOr<std::vector<int32_t>>& baseline_routes,
                                 CheckResult& check) {
    LASTFLOP_RETURN_IF_ERROR(baseline_out.status());
    LASTFLOP_RETURN_IF_ERROR(baseline_routes.status());
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> out, variant_->Output());
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<int32_t> routes, variant_->ChosenExperts());
    // Plans that lay tokens out differently (speculation, data attention) are compared over what
    // both have: the leading tokens.
    check.error_to_baseline = RelativeDistance(out, *baseline_out);
    if (!std::isfinite(check.error_to_baseline)) {
      return absl::InternalError("the final hidden states are not finite, or stand for zeros");
    }
    if (routes.size() == baseline_routes->size() && !routes.empty()) {
      int64_t changed = 0;
      for (size_t i = 0; i < routes.size(); ++i) {
        changed += routes[i] != (*baseline_routes)[i] ? 1 : 0;
      }
      check.changed_routes = static_cast<double>(changed) / static_cast<double>(routes.size());
    }
    return absl::OkStatus();
  }

  bool WarmUp() {
    const int64_t draw = DrawOf(spec(), kWarmUpPair);
    for (Arm* arm : {baseline_.get(), variant_.get()}) {
      absl::Status status = arm->SetDraw(draw);
      for (int step = 0; step < arm->num_warm_up_steps() && status.ok(); ++step) {
        status = arm->Run().status();
      }
      if (!Agreed(status, "warming up")) {
        return false;
      }
    }
    return true;
  }

  // One timed step over all ranks: the slowest rank's time.
  bool TimedStep(Arm& arm, absl::string_view name, StepTiming& timing) {
    const absl::StatusOr<StepTiming> own = arm.Run();
    timing = own.ok() ? *own : StepTiming{};
    // One exchange that a failed rank takes part in as well, so that no rank waits for it.
    double failed = own.ok() ? 0 : 1;
    double throttled = timing.throttled ? 1 : 0;
    if (!MaxOverRanks(failed, failed)) {
      return false;
    }
    if (failed > 0) {
      return Agreed(own.status(), name);
    }
    if (!MaxOverRanks(timing.us, timing.us) || !MaxOverRanks(timing.wait_us, timing.wait_us) ||
        !MaxOverRanks(throttled, throttled)) {
      return false;
    }
    timing.throttled = throttled > 0;
    return CheckPossible(arm, name, timing.us);
  }

  bool CheckPossible(const Arm& arm, absl::string_view name, double us) {
    if (!(us > 0) || !std::isfinite(us)) {
      return Fail(FailureKind::kImpossible,
                  absl::StrFormat("%s: a step of %g us is no time", std::string(name), us));
    }
    if (us < arm.least_possible_us()) {
      return Fail(FailureKind::kImpossible,
                  absl::StrFormat("%s: %.1f us a step is faster than the declared peak of the "
                                  "machine allows (%.1f us)",
                                  std::string(name), us, arm.least_possible_us()));
    }
    return true;
  }

  bool SamplePair(int64_t pair_index) {
    const int64_t draw = DrawOf(spec(), pair_index);
    const bool variant_first =
        VariantFirst(absl::StrCat(inputs_.launch.campaign_id, "/", spec().trial_id),
                     inputs_.launch.launch, pair_index);
    absl::Status drawn = baseline_->SetDraw(draw);
    if (drawn.ok()) {
      drawn = variant_->SetDraw(draw);
    }
    if (!Agreed(drawn, "drawing inputs")) {
      return false;
    }
    StepTiming of_baseline;
    StepTiming of_variant;
    const bool ok = variant_first ? TimedStep(*variant_, "variant", of_variant) &&
                                        TimedStep(*baseline_, "baseline", of_baseline)
                                  : TimedStep(*baseline_, "baseline", of_baseline) &&
                                        TimedStep(*variant_, "variant", of_variant);
    if (!ok) {
      return false;
    }
    AddSample(draw, variant_first, of_baseline, of_variant);
    return true;
  }

  void AddSample(int64_t draw, bool variant_first, const StepTiming& of_baseline,
                 const StepTiming& of_variant) {
    const ComparableTimes times =
        MakeComparable(of_baseline.us, of_variant.us, baseline_plan_, variant_plan_,
                       baseline_->tokens_per_step(), variant_->tokens_per_step());
    PairSample sample;
    sample.pair = Pair{.launch = inputs_.launch.launch,
                       .draw = draw,
                       .baseline_us = times.baseline_us,
                       .variant_us = times.variant_us,
                       .throttled = of_baseline.throttled || of_variant.throttled,
                       .baseline_throttled = of_baseline.throttled,
                       .variant_throttled = of_variant.throttled};
    sample.variant_first = variant_first;
    sample.baseline_wait_us = of_baseline.wait_us;
    sample.variant_wait_us = of_variant.wait_us;
    sample.unique_experts = variant_->unique_experts();
    sample.imbalance = variant_->imbalance();
    pairs_.push_back(sample.pair);
    result_.samples.push_back(sample);
  }

  double SpeedupSoFar() const {
    double baseline_us = 0;
    double variant_us = 0;
    for (const Pair& pair : pairs_) {
      baseline_us += pair.baseline_us;
      variant_us += pair.variant_us;
    }
    return variant_us > 0 ? baseline_us / variant_us : 0;
  }

  // The leader decides, so that clocks that differ between ranks cannot part them.
  bool LeaderContinues(double started_s, bool& goes_on) {
    std::string word = "stop";
    if (gang_.rank() == 0) {
      const double elapsed_s = inputs_.now_s() - started_s;
      const Micros sampled = std::chrono::duration<double>(elapsed_s);
      const double max_time_s = std::chrono::duration<double>(spec().max_time).count();
      const auto num_pairs = static_cast<int64_t>(pairs_.size());
      const bool enough = num_pairs >= spec().min_pairs && inputs_.stop(pairs_, sampled);
      const bool late = elapsed_s >= max_time_s && num_pairs >= 1;
      word = enough || late || num_pairs >= spec().max_pairs ? "stop" : "go";
    }
    const absl::StatusOr<std::string> heard = gang_.BroadcastFromLeader(word);
    if (!heard.ok()) {
      return Fail(KindOf(heard.status()), std::string(heard.status().message()));
    }
    goes_on = *heard == "go";
    return true;
  }

  bool Sample() {
    const double started_s = inputs_.now_s();
    const std::optional<CpuSeconds> before = ReadCpuSeconds();
    bool goes_on = true;
    for (int64_t pair_index = 0; goes_on; ++pair_index) {
      const bool ok = SamplePair(pair_index) && LeaderContinues(started_s, goes_on);
      result_.sampling_s = inputs_.now_s() - started_s;
      if (!ok) {
        return false;
      }
      if (pair_index % kProgressEveryPairs == 0) {
        inputs_.progress("sampling", pair_index + 1, SpeedupSoFar());
      }
    }
    return NoteHostLoad(before);
  }

  // What others took of the host's processors since `before`. All ranks call it: each knows its own
  // share of what the gang took.
  bool NoteHostLoad(const std::optional<CpuSeconds>& before) {
    const std::optional<CpuSeconds> after = ReadCpuSeconds();
    const bool is_known = before.has_value() && after.has_value();
    std::vector<double> own;
    if (!Gathered(is_known ? after->own - before->own : 0, own)) {
      return false;
    }
    if (is_known) {
      elsewhere_ = ShareElsewhere(*before, *after, std::accumulate(own.begin(), own.end(), 0.0));
    }
    return true;
  }

  void Breakdown() {
    if (!spec().breakdown) {
      return;
    }
    inputs_.progress("breakdown", static_cast<int64_t>(result_.samples.size()), SpeedupSoFar());
    absl::StatusOr<Arm::Breakdown> made = variant_->MeasureBreakdown(
        spec().intervention_id == kBaselineId ? kBreakdownSamples : kClaimBreakdownSamples);
    if (!Agreed(made.status(), "breakdown")) {
      return;
    }
    if (!made->of_all_ranks) {
      TakeSlowestRank(*made);
    }
    result_.breakdown = std::move(made->entries);
    result_.breakdown_method = made->method;
    result_.breakdown_step_us = made->step_us;
  }

  // Ranks meet in collectives, so their steps take equally long: the one with most of it to do
  // itself is what a step waits for. Its times take the place of this rank's in `breakdown`, op by
  // op. A rank with other ops (an idle one) is not compared. A broken gang leaves the failure.
  void TakeSlowestRank(Arm::Breakdown& breakdown) {
    std::vector<BreakdownEntry>& entries = breakdown.entries;
    std::vector<double> counts;
    std::vector<double> own_work;
    double work_us = 0;
    for (const BreakdownEntry& entry : entries) {
      const bool is_work =
          entry.category != OpCategory::kCollective && entry.category != OpCategory::kHost;
      work_us += is_work ? entry.us : 0;
    }
    if (!Gathered(static_cast<double>(entries.size()), counts) || !Gathered(work_us, own_work)) {
      return;
    }
    size_t slowest = 0;
    for (size_t rank = 1; rank < own_work.size(); ++rank) {
      slowest = counts[rank] == counts[0] && own_work[rank] > own_work[slowest] ? rank : slowest;
    }
    std::vector<double> of_ranks;
    for (size_t i = 0; i < static_cast<size_t>(counts[0]); ++i) {
      BreakdownEntry unused;
      BreakdownEntry& entry = i < entries.size() ? entries[i] : unused;
      if (!Gathered(entry.us, of_ranks)) {
        return;
      }
      entry.us = of_ranks[slowest];
      if (!Gathered(entry.floor_us, of_ranks)) {
        return;
      }
      entry.floor_us = of_ranks[slowest];
    }
    if (Gathered(breakdown.step_us, of_ranks)) {
      breakdown.step_us = of_ranks[slowest];
      if (own_work.size() > 1) {
        absl::StrAppend(&breakdown.method, " of rank ", slowest, ", which has most to do");
      }
    }
  }

  // All ranks' values, by rank.
  bool Gathered(double value, std::vector<double>& all) {
    absl::StatusOr<std::vector<double>> gathered = gang_.AllGather(value);
    if (!gathered.ok()) {
      return Fail(KindOf(gathered.status()), std::string(gathered.status().message()));
    }
    all = *std::move(gathered);
    return true;
  }

  void Describe() {
    if (baseline_ != nullptr) {
      result_.effective_baseline = CanonicalText(baseline_->effective_plan());
    }
    if (variant_ != nullptr) {
      result_.effective_variant = CanonicalText(variant_->effective_plan());
      result_.effective_note = variant_->effective_note();
      if (variant_plan_ != spec().variant) {
        absl::StrAppend(&result_.effective_note, result_.effective_note.empty() ? "" : "; ",
                        "prefill drafts no tokens: decode.speculative is off");
      }
      result_.capture_us = variant_->capture_us();
    }
    result_.environment = backend_.Environment();
    if (elsewhere_.has_value()) {
      result_.environment[kCpuShareElsewhere] = absl::StrFormat("%.2f", *elsewhere_);
    }
    result_.data_checksum = backend_.DataChecksum();
  }

  AttemptResult Finished() {
    result_.attempt_id = spec().attempt_id;
    result_.trial_id = spec().trial_id;
    result_.launch = inputs_.launch.launch;
    result_.data_seed = inputs_.launch.data_seed;
    result_.warm = inputs_.campaign.measure.warm;
    if (result_.failure.has_value()) {
      result_.breakdown.clear();
    }
    return std::move(result_);
  }

  Backend& backend_;  // Outlives this.
  Gang& gang_;        // Outlives this.
  Agreement agreement_;
  const AttemptInputs& inputs_;
  const Plan baseline_plan_;  // As the point uses it.
  const Plan variant_plan_;
  std::unique_ptr<Arm> baseline_;
  std::unique_ptr<Arm> variant_;
  std::vector<Pair> pairs_;
  AttemptResult result_;
  std::optional<double> elsewhere_;  // Share of the host's processors that others took.
};

}  // namespace

ComparableTimes MakeComparable(double raw_baseline_us, double raw_variant_us, const Plan& baseline,
                               const Plan& variant, double baseline_tokens, double variant_tokens) {
  const auto drafts = [](const Plan& plan) {
    return static_cast<double>(plan.speculative.draft_tokens) * plan.speculative.draft_cost;
  };
  const double tokens_ratio = variant_tokens > 0 ? baseline_tokens / variant_tokens : 1;
  return {.baseline_us = raw_baseline_us * (1 + drafts(baseline)),
          .variant_us = (raw_variant_us + drafts(variant) * raw_baseline_us) * tokens_ratio};
}

AttemptResult RunAttempt(Backend& backend, Gang& gang, const AttemptInputs& inputs) {
  absl::StatusOr<Agreement> agreement = Agreement::Create(gang);
  if (!agreement.ok()) {
    AttemptResult result;
    result.attempt_id = inputs.attempt.attempt_id;
    result.trial_id = inputs.attempt.trial_id;
    result.launch = inputs.launch.launch;
    result.failure = Failure{.kind = KindOf(agreement.status()),
                             .message = std::string(agreement.status().message()),
                             .rank = -1};
    return result;
  }
  return AttemptRun(backend, gang, *std::move(agreement), inputs).Run();
}

}  // namespace lastflop
