#include "planner/answer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/figure_text.h"
#include "planner/context.h"

namespace lastflop {
namespace {

struct Counts {
  int placed = 0;
  int same = 0;
  int slower = 0;
  int undecided = 0;
  int missing = 0;
};

Counts Count(const Ranking& ranking) {
  Counts counts;
  for (const RankedIntervention& one : ranking.interventions) {
    if (!one.place.has_value()) {
      ++counts.missing;
      continue;
    }
    ++counts.placed;
    counts.same += one.effect == Effect::kSame ? 1 : 0;
    counts.slower += one.effect == Effect::kSlower ? 1 : 0;
    counts.undecided += !one.effect.has_value() || one.effect == Effect::kUndecided ? 1 : 0;
  }
  return counts;
}

std::string SpeedupText(const SpeedupFigure& figure) {
  return FigureText(figure.estimate, figure.low, figure.high);
}

// The first point of the mix that the baseline has no result at, now that nothing more runs; ""
// when there is none.
std::string MissingPoint(const Ranking& ranking) {
  if (ranking.state != CampaignState::kDone && ranking.state != CampaignState::kBaselineFailed) {
    return "";
  }
  for (const BaselinePoint& point : ranking.baseline) {
    if (point.time_share > 0 && !point.step_us.has_value()) {
      return absl::StrCat("the baseline has no result at ", point.label, " (",
                          point.reason.empty() ? ToWord(point.standing) : point.reason, ")");
    }
  }
  return "";
}

bool IsFasterAtAPoint(const RankedIntervention& one) {
  return std::any_of(one.points.begin(), one.points.end(),
                     [](const PointResult& point) { return point.effect == Effect::kFaster; });
}

// Whether any point of any intervention has a figure of its own.
bool HasFigures(const Ranking& ranking) {
  return std::any_of(ranking.interventions.begin(), ranking.interventions.end(),
                     [](const RankedIntervention& one) {
                       return std::any_of(
                           one.points.begin(), one.points.end(),
                           [](const PointResult& point) { return point.speedup.has_value(); });
                     });
}

// Of what is settled, how; of what may still run, that there is no answer yet.
std::string NothingPlaced(const Ranking& ranking) {
  if (const std::string missing = MissingPoint(ranking); !missing.empty()) {
    return absl::StrCat(
        "No answer over the whole mix: ", missing,
        ", so nothing compares with it there; the other points stand by themselves.");
  }
  std::map<Standing, int> by_standing;
  for (const RankedIntervention& one : ranking.interventions) {
    ++by_standing[one.standing];
  }
  const std::string none =
      absl::StrCat("none of ", ranking.interventions.size(), " interventions has a ");
  if (by_standing.empty() || by_standing.contains(Standing::kNotRun) ||
      ranking.state == CampaignState::kRunning) {
    return absl::StrCat("No answer yet: ", none, "result over the whole mix.");
  }
  std::vector<std::string> parts;
  // A ceiling or a shape rules an intervention out; that no worker had it says nothing of it.
  bool can_none_help = true;
  bool was_none_tried = true;
  for (const auto& [standing, count] : by_standing) {
    parts.push_back(absl::StrCat(count, " ", ToWord(standing)));
    const bool is_ruled_out = standing == Standing::kPruned || standing == Standing::kInfeasible;
    can_none_help &= is_ruled_out;
    was_none_tried &= is_ruled_out || standing == Standing::kUnsupported;
  }
  const std::string how = absl::StrJoin(parts, ", ");
  if (!was_none_tried || HasFigures(ranking)) {
    return absl::StrCat("No answer: ", none, "result over the whole mix (", how, ").");
  }
  return absl::StrCat(can_none_help ? "Nothing here can help" : "Nothing was measured", ": of ",
                      ranking.interventions.size(), " interventions ", how, ".");
}

std::string NothingFaster(const Ranking& ranking) {
  const Counts counts = Count(ranking);
  if (counts.placed == 0) {
    return NothingPlaced(ranking);
  }
  std::vector<std::string> parts;
  if (counts.same > 0) parts.push_back(absl::StrCat(counts.same, " same"));
  if (counts.slower > 0) parts.push_back(absl::StrCat(counts.slower, " slower"));
  if (counts.undecided > 0) parts.push_back(absl::StrCat(counts.undecided, " undecided"));
  if (counts.missing > 0) parts.push_back(absl::StrCat(counts.missing, " without a place"));
  const bool is_predicted = std::any_of(
      ranking.interventions.begin(), ranking.interventions.end(),
      [](const RankedIntervention& one) { return one.standing == Standing::kPredicted; });
  const auto num_faster =
      std::count_if(ranking.interventions.begin(), ranking.interventions.end(), IsFasterAtAPoint);
  return absl::StrCat(
      is_predicted ? "nothing is predicted to beat the baseline in the mix ("
                   : "Nothing measured beats the baseline beyond noise in the mix (",
      absl::StrJoin(parts, ", "), ")",
      num_faster == 0
          ? ""
          : absl::StrCat("; ", num_faster, num_faster == 1 ? " is" : " are", " faster at a point"),
      ".");
}

std::string Partial(const Ranking& ranking) {
  return ranking.state == CampaignState::kDone
             ? ""
             : absl::StrCat(" (the campaign is ", ToWord(ranking.state), ": what is done so far)");
}

std::string GainText(const Gain& gain) {
  return absl::StrCat(", ", WholeText(gain.net_gpu_hours, /*sign=*/true), " GPU-hours net");
}

const RankedIntervention* Find(const Ranking& ranking, const std::string& id) {
  const auto found = std::find_if(ranking.interventions.begin(), ranking.interventions.end(),
                                  [&id](const RankedIntervention& one) { return one.id == id; });
  return found == ranking.interventions.end() ? nullptr : &*found;
}

std::string AnswerFrom(const Ranking& ranking) {
  const auto is_measured = [](const BaselinePoint& point) {
    return point.standing == Standing::kMeasured || point.standing == Standing::kPredicted;
  };
  if (std::none_of(ranking.baseline.begin(), ranking.baseline.end(), is_measured)) {
    const std::string reason =
        ranking.baseline.empty() ? "no point" : ranking.baseline.front().reason;
    return absl::StrCat("No answer: the baseline has no result (",
                        reason.empty() ? "not run" : reason, "), so nothing compares with it.");
  }
  if (!ranking.sequence.empty()) {
    const RankedIntervention* first = Find(ranking, ranking.sequence.front().id);
    if (first != nullptr && first->mix.has_value()) {
      const std::optional<double>& stack = ranking.sequence.back().measured_stack;
      const std::string more =
          ranking.sequence.size() == 1
              ? ""
              : absl::StrFormat("; with %d more the stack is %s at %sx",
                                ranking.sequence.size() - 1,
                                stack.has_value() ? "measured" : "modelled",
                                RatioText(stack.value_or(ranking.sequence.back().expected_stack)));
      // Of several the gain is the set's: the first may be ground that others stand on.
      const std::string gain =
          ranking.sequence.size() > 1 && ranking.sequence_net_gpu_hours.has_value()
              ? absl::StrCat(", ", WholeText(*ranking.sequence_net_gpu_hours, /*sign=*/true),
                             " GPU-hours net together")
          : ranking.sequence.size() == 1 && first->gain.has_value() ? GainText(*first->gain)
                                                                    : "";
      const std::string devices =
          first->devices_text.empty() ? "" : absl::StrCat(" on ", first->devices_text);
      return absl::StrFormat("Build %s first: %s in the mix%s for %g engineer-hours%s%s%s.",
                             NameOf(first->id, first->choice), SpeedupText(*first->mix), devices,
                             first->effort.likely_hours, more, gain, Partial(ranking));
    }
  }
  for (const RankedIntervention& one : ranking.interventions) {
    if (one.place.has_value() && one.effect == Effect::kFaster) {
      const std::string gain = one.gain.has_value() ? GainText(*one.gain) : "";
      const std::string from =
          one.break_even_gpu_hours.has_value()
              ? absl::StrCat(" (it pays from ", WholeText(*one.break_even_gpu_hours),
                             " GPU-hours on)")
              : "";
      const std::string devices =
          one.devices_text.empty() ? "" : absl::StrCat(" on ", one.devices_text);
      return absl::StrFormat("Build nothing yet: the best, %s, is %s in the mix%s%s, but %s%s%s.",
                             NameOf(one.id, one.choice), SpeedupText(*one.mix), devices, gain,
                             CountedPerDevice(one) <= 1 ? "costs more GPU-hours than it saves"
                             : one.gain.has_value() && one.gain->net_gpu_hours <= 0
                                 ? "does not earn its effort"
                                 : "does not fit the budget or its needs",
                             from, Partial(ranking));
    }
  }
  std::string answer = NothingFaster(ranking);
  const std::string partial = Partial(ranking);
  if (!partial.empty()) {
    answer.insert(answer.size() - 1, partial);
  }
  return answer;
}

}  // namespace

std::string AnswerOf(const Ranking& ranking) {
  const bool is_predicted = std::any_of(
      ranking.baseline.begin(), ranking.baseline.end(),
      [](const BaselinePoint& point) { return point.standing == Standing::kPredicted; });
  return absl::StrCat(is_predicted ? "Predicted, not measured: " : "", AnswerFrom(ranking));
}

}  // namespace lastflop
