#include "planner/explain.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/figure_text.h"
#include "common/suggest.h"
#include "planner/economics.h"

namespace lastflop {
namespace {

std::string FigureText(const SpeedupFigure& figure) {
  return lastflop::FigureText(figure.estimate, figure.low, figure.high);
}

std::string OriginText(Origin origin, absl::string_view of) {
  return absl::StrCat(ToWord(origin), ": ", of);
}

ExplainedLine PlaceLine(const Ranking& ranking, const RankedIntervention& one) {
  const auto num_placed =
      std::count_if(ranking.interventions.begin(), ranking.interventions.end(),
                    [](const RankedIntervention& other) { return other.place.has_value(); });
  std::string text = one.place.has_value()
                         ? absl::StrCat(*one.place, " of ", num_placed)
                         : absl::StrCat("none", one.ranks_apart ? ", it ranks apart" : "");
  if (one.place_held.has_value()) {
    absl::StrAppendFormat(&text, " (in %.0f%% of draws)", 100 * *one.place_held);
  }
  absl::StrAppend(&text, ", ", ranking.order_note);
  return {"place", std::move(text), OriginText(Origin::kModelled, "from the lines below")};
}

ExplainedLine StandingLine(const RankedIntervention& one) {
  std::string text(ToWord(one.standing));
  if (one.effect.has_value()) {
    absl::StrAppend(&text, ", ", ToWord(*one.effect));
  }
  if (!one.choice.empty()) {
    absl::StrAppend(&text, ", with ", one.choice);
    if (!one.choice_method.empty()) {
      absl::StrAppend(&text, " (", one.choice_method, ")");
    }
  }
  absl::StrAppend(&text, one.reason.empty() ? "" : ": ", one.reason);
  const bool ran = one.standing == Standing::kMeasured;
  return {"standing", std::move(text),
          ran ? OriginText(Origin::kMeasured, "multiplicity-controlled interval")
              : OriginText(Origin::kModelled, "what stopped it")};
}

ExplainedLine SpeedupLine(const Ranking& ranking, const RankedIntervention& one) {
  if (!one.mix.has_value()) {
    return {"speedup in the mix", "n/a: not every point has a result", "n/a"};
  }
  return {
      "speedup in the mix",
      absl::StrFormat("%s at %.4g%% from %d pairs of %d launches; time shares are the campaign's",
                      FigureText(*one.mix), 100 * ranking.interval_confidence.value_or(0.8),
                      one.mix->num_pairs, one.mix->num_launches),
      OriginText(one.mix->origin,
                 absl::StrCat(ToWord(one.fidelity), " fidelity; time shares assumed"))};
}

ExplainedLine PointsLine(const RankedIntervention& one) {
  std::vector<std::string> parts;
  Origin origin = Origin::kMeasured;
  for (const PointResult& point : one.points) {
    std::string part =
        absl::StrFormat("%s (%.3g%% of the time) ", point.label, 100 * point.time_share);
    if (point.speedup.has_value()) {
      origin = std::max(origin, point.speedup->origin);
      absl::StrAppend(&part, FigureText(*point.speedup), point.enabled ? "" : " (off)");
    } else {
      absl::StrAppend(&part, ToWord(point.standing));
    }
    parts.push_back(std::move(part));
  }
  return {"at each point", absl::StrJoin(parts, "; "), OriginText(origin, "mean times of pairs")};
}

ExplainedLine CeilingLine(const RankedIntervention& one) {
  return {
      "ceiling",
      absl::StrCat(one.ceiling.has_value() ? absl::StrCat(RatioText(*one.ceiling), "x: ") : "n/a: ",
                   one.ceiling_arithmetic),
      OriginText(Origin::kModelled,
                 "the baseline's measured breakdown, floors from the machine's peaks")};
}

ExplainedLine ClaimLine(const RankedIntervention& one) {
  if (!one.claim.has_value()) {
    return {"claim", "none", "n/a"};
  }
  const std::string source = one.claim->source.empty()
                                 ? "the claim names no source"
                                 : absl::StrCat("the claim is of ", one.claim->source);
  const bool is_measured =
      one.standing == Standing::kMeasured && one.claim_verdict != ClaimVerdict::kImpossible;
  return {"claim", absl::StrCat(ToWord(one.claim_verdict), ": ", one.claim_reason),
          OriginText(is_measured ? Origin::kMeasured : Origin::kModelled, source)};
}

ExplainedLine PriorLine(const Campaign& campaign, const RankedIntervention& one) {
  std::vector<std::string> parts;
  Origin origin = Origin::kAssumed;
  std::string source = "the cost model's";
  for (const Intervention& intervention : campaign.interventions) {
    if (intervention.id == one.id && intervention.prior.has_value()) {
      parts.push_back(absl::StrCat("prior result ", intervention.prior->result));
      source = intervention.prior->source.empty() ? "the prior names no source"
                                                  : intervention.prior->source;
    }
  }
  if (one.predicted_speedup.has_value()) {
    origin = parts.empty() ? Origin::kModelled : origin;  // A prior is the less sure of the two.
    source = parts.empty() ? source : absl::StrCat(source, "; the prediction is the cost model's");
    parts.push_back(absl::StrCat("predicted ", RatioText(*one.predicted_speedup), "x"));
  }
  if (one.prediction_error.has_value()) {
    parts.push_back(absl::StrCat("off by ", PercentText(*one.prediction_error, /*sign=*/true)));
  }
  return parts.empty() ? ExplainedLine{"known before", "nothing", "n/a"}
                       : ExplainedLine{"known before", absl::StrJoin(parts, ", "),
                                       OriginText(origin, source)};
}

ExplainedLine GainLine(const Campaign& campaign, const RankedIntervention& one) {
  if (!one.gain.has_value()) {
    return {"net gain",
            campaign.economics.gpu_hours.has_value() ? "n/a: no speedup in the mix"
                                                     : "n/a: economics.gpu_hours is not given",
            "n/a"};
  }
  std::string text =
      absl::StrFormat("%+.0f GPU-hours = %g * saving%s * %.2f chance - effort * %g",
                      one.gain->net_gpu_hours, *campaign.economics.gpu_hours,
                      one.devices_text.empty() ? "" : absl::StrCat(" on ", one.devices_text),
                      one.whole_chance, campaign.economics.engineer_hour_in_gpu_hours);
  if (one.gain->low.has_value() && one.gain->high.has_value()) {
    absl::StrAppendFormat(&text, " (%+.0f to %+.0f)", *one.gain->low, *one.gain->high);
  }
  if (one.break_even_gpu_hours.has_value()) {
    absl::StrAppendFormat(&text, "; pays from %.0f GPU-hours on", *one.break_even_gpu_hours);
  }
  return {"net gain", std::move(text),
          OriginText(Origin::kModelled, "measured speedup; chance and prices assumed")};
}

ExplainedLine EffortLine(const RankedIntervention& one) {
  std::string text = absl::StrFormat("%g engineer-hours (%g to %g), risk %s, quality %s",
                                     one.effort.likely_hours, one.effort.low_hours,
                                     one.effort.high_hours, ToWord(one.risk), ToWord(one.quality));
  if (!one.needs.empty()) {
    absl::StrAppend(&text, ", needs ", absl::StrJoin(one.needs, " "));
  }
  if (!one.excludes.empty()) {
    absl::StrAppend(&text, ", excludes ", absl::StrJoin(one.excludes, " "));
  }
  return {"effort", std::move(text), OriginText(Origin::kAssumed, "the campaign's file")};
}

ExplainedLine SequenceLine(const Ranking& ranking, const RankedIntervention& one) {
  for (size_t i = 0; i < ranking.sequence.size(); ++i) {
    const SequenceStep& step = ranking.sequence[i];
    if (step.id == one.id) {
      return {"recommended",
              absl::StrFormat("step %d of %d; the stack is then %.3fx, %g engineer-hours so far",
                              i + 1, ranking.sequence.size(),
                              step.measured_stack.value_or(step.expected_stack),
                              step.cumulative_effort_hours),
              step.measured_stack.has_value()
                  ? OriginText(Origin::kMeasured, "the stack against the baseline")
                  : OriginText(Origin::kModelled, "product of the parts")};
    }
  }
  return {
      "recommended",
      absl::StrCat(ranking.sequence.empty() ? "no: " : "no; the set is ", ranking.sequence_note),
      OriginText(Origin::kModelled, "search over allowed sets")};
}

}  // namespace

absl::StatusOr<std::vector<ExplainedLine>> Explain(const Ranking& ranking, const Campaign& campaign,
                                                   absl::string_view id) {
  std::vector<std::string> ids;
  for (const RankedIntervention& one : ranking.interventions) {
    if (one.id == id) {
      return std::vector<ExplainedLine>{PlaceLine(ranking, one),   StandingLine(one),
                                        SpeedupLine(ranking, one), PointsLine(one),
                                        CeilingLine(one),          ClaimLine(one),
                                        PriorLine(campaign, one),  GainLine(campaign, one),
                                        EffortLine(one),           SequenceLine(ranking, one)};
    }
    ids.push_back(one.id);
  }
  return absl::NotFoundError(absl::StrCat("no intervention is called \"", id, "\"",
                                          DidYouMean(id, {ids.begin(), ids.end()})));
}

}  // namespace lastflop
