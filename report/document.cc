#include "report/document.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "report/format.h"
#include "report/round_sections.h"

namespace lastflop {
namespace {

Tone ToneOf(std::optional<Effect> effect) {
  if (!effect.has_value()) return Tone::kMuted;
  switch (*effect) {
    case Effect::kFaster:
      return Tone::kGood;
    case Effect::kSlower:
      return Tone::kBad;
    case Effect::kSame:
      return Tone::kPlain;
    case Effect::kUndecided:
      return Tone::kUnsure;
  }
  return Tone::kPlain;
}

Tone ToneOf(Standing standing) {
  switch (standing) {
    case Standing::kMeasured:
      return Tone::kPlain;
    case Standing::kInvalid:
    case Standing::kFailed:
      return Tone::kBad;
    default:
      return Tone::kMuted;
  }
}

Tone ToneOf(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::kConfirmed:
    case ClaimVerdict::kExceeded:
      return Tone::kGood;
    case ClaimVerdict::kRefuted:
    case ClaimVerdict::kImpossible:
      return Tone::kBad;
    case ClaimVerdict::kPartial:
    case ClaimVerdict::kUndecided:
      return Tone::kUnsure;
    case ClaimVerdict::kNone:
      return Tone::kMuted;
  }
  return Tone::kPlain;
}

Cell Known(std::string text, Tone tone = Tone::kPlain) {
  const bool is_known = text != kNotAvailable;
  return {std::move(text), is_known ? tone : Tone::kMuted};
}

Cell Word(absl::string_view word, Tone tone) { return {std::string(word), tone}; }

std::string PlaceText(const RankedIntervention& one) {
  if (one.place.has_value()) {
    return absl::StrCat(*one.place);
  }
  return one.mix.has_value() ? "apart" : kNotAvailable;
}

std::string GainText(const std::optional<Gain>& gain) {
  if (!gain.has_value()) {
    return kNotAvailable;
  }
  std::string text = FormatCount(gain->net_gpu_hours, /*sign=*/true);
  if (gain->low.has_value() && gain->high.has_value()) {
    absl::StrAppend(&text, " (", FormatCount(gain->low, true), " to ",
                    FormatCount(gain->high, true), ")");
  }
  return text;
}

std::string ChoiceOf(const Ranking& ranking, const std::string& id) {
  for (const RankedIntervention& one : ranking.interventions) {
    if (one.id == id) {
      return one.choice;
    }
  }
  return "";
}

Section SequenceSection(const Ranking& ranking) {
  Section section{.id = "sequence",
                  .title = "Recommended sequence",
                  .note = ranking.sequence_note,
                  .table = {},
                  .items = {}};
  if (ranking.sequence.empty()) {
    return section;
  }
  section.table.columns = {{"step", true, 0},
                           {"intervention", false, 0},
                           {"effort", true, 1},
                           {"effort so far", true, 2},
                           {"speedup alone", true, 0},
                           {"stack (modelled)", true, 0},
                           {"stack (measured)", true, 3}};
  int step = 0;
  for (const SequenceStep& one : ranking.sequence) {
    section.table.rows.push_back(
        {{absl::StrCat(++step), Tone::kMuted},
         {NameOf(one.id, ChoiceOf(ranking, one.id)), Tone::kStrong,
          one.on_at.empty() ? "" : absl::StrCat("on at ", absl::StrJoin(one.on_at, ", "))},
         {FormatHours(one.effort_hours)},
         {FormatHours(one.cumulative_effort_hours)},
         {FormatSpeedup(one.speedup), Tone::kGood},
         {FormatSpeedup(one.expected_stack)},
         Known(FormatSpeedup(one.measured_stack))});
  }
  return section;
}

bool IsPredicted(const Ranking& ranking) {
  return std::any_of(
      ranking.baseline.begin(), ranking.baseline.end(),
      [](const BaselinePoint& point) { return point.standing == Standing::kPredicted; });
}

std::string IntervalNote(const Ranking& ranking) {
  if (!ranking.interval_confidence.has_value() || !ranking.confidence.has_value()) {
    return "Intervals are of the cost model's error, meant to hold four measurements of five; "
           "nothing here is measured";
  }
  return absl::StrFormat(
      "Each interval holds at %.4g%%, so that the verdicts of all comparisons hold together at "
      "%.4g%%",
      100 * *ranking.interval_confidence, 100 * *ranking.confidence);
}

Section RankingSection(const Ranking& ranking) {
  Section section{
      .id = "ranking",
      .title = "Ranking",
      .note = absl::StrCat("Order: ", ranking.order_note, ". ", IntervalNote(ranking),
                           "; the minimum effect is ",
                           absl::StrFormat("%.4g%%", 100 * ranking.min_effect),
                           ". \"Place held\" is the share of draws of efforts and proven speedups "
                           "within their intervals that leave a place as it is."),
      .table = {},
      .items = {}};
  section.table.columns = {
      {"place", true, 0},          {"intervention", false, 0}, {"speedup in the mix", true, 0},
      {"effect", false, 0},        {"standing", false, 1},     {"claim", false, 4},
      {"claim verdict", false, 2}, {"ceiling", true, 5},       {"net gain (GPU-h)", true, 1},
      {"effort", true, 3},         {"risk", false, 7},         {"break-even (GPU-h)", true, 6},
      {"per hour", true, 6},       {"pairs", true, 8},         {"tier", true, 8},
      {"quality", false, 9},       {"fidelity", false, 9},     {"place held", true, 5},
      {"Pareto", false, 8}};
  for (const RankedIntervention& one : ranking.interventions) {
    const Tone name = one.place.has_value() ? Tone::kStrong : Tone::kMuted;
    section.table.rows.push_back(
        {{PlaceText(one), Tone::kMuted},
         {NameOf(one.id, one.choice), name, one.title == one.id ? "" : one.title},
         Known(FormatFigure(one.mix), ToneOf(one.effect)),
         {FormatEffect(one.effect), ToneOf(one.effect)},
         Word(ToWord(one.standing), ToneOf(one.standing)),
         {FormatClaim(one.claim), one.claim.has_value() ? Tone::kPlain : Tone::kMuted},
         Word(ToWord(one.claim_verdict), ToneOf(one.claim_verdict)),
         Known(FormatSpeedup(one.ceiling)),
         Known(GainText(one.gain)),
         {FormatHours(one.effort.likely_hours)},
         {std::string(ToWord(one.risk))},
         Known(FormatCount(one.break_even_gpu_hours)),
         Known(FormatCount(one.gain_per_hour, /*sign=*/true)),
         Known(one.mix.has_value() ? absl::StrCat(one.mix->num_pairs) : kNotAvailable),
         {absl::StrCat(one.tier)},
         {std::string(ToWord(one.quality))},
         {std::string(ToWord(one.fidelity)),
          one.fidelity == Fidelity::kFull ? Tone::kPlain : Tone::kUnsure},
         Known(FormatPercent(one.place_held)),
         {one.pareto_layer == 1 ? "front" : "", Tone::kGood}});
  }
  return section;
}

std::string TokensText(const PointResult& point) {
  if (!point.baseline_tokens_per_s.has_value()) {
    return kNotAvailable;
  }
  return absl::StrCat(FormatNumber(point.baseline_tokens_per_s), " -> ",
                      FormatNumber(point.variant_tokens_per_s));
}

// Points of one standing without a figure say no more in as many rows.
bool HasNothingToShow(const RankedIntervention& one) {
  return one.points.size() > 1 &&
         std::all_of(one.points.begin(), one.points.end(), [&one](const PointResult& point) {
           return !point.speedup.has_value() && !point.ceiling.has_value() &&
                  point.standing == one.points.front().standing;
         });
}

Section PointsSection(const Ranking& ranking) {
  Section section{.id = "points", .title = "At each point", .note = "", .table = {}, .items = {}};
  section.table.columns = {{"intervention", false, 0}, {"point", false, 0}, {"time share", true, 5},
                           {"speedup", true, 0},       {"pairs", true, 4},  {"tokens/s", true, 2},
                           {"ceiling", true, 5},       {"noise", true, 6},  {"detectable", true, 6},
                           {"standing", false, 1},     {"effect", false, 0}};
  for (const RankedIntervention& one : ranking.interventions) {
    if (HasNothingToShow(one)) {
      std::vector<Cell> row(section.table.columns.size(), Known(kNotAvailable));
      row[0] = {one.id, Tone::kStrong};
      row[1] = {absl::StrCat("all ", one.points.size(), " points")};
      row[2] = {""};
      row[9] = Word(ToWord(one.points.front().standing), ToneOf(one.points.front().standing));
      section.table.rows.push_back(std::move(row));
      continue;
    }
    for (const PointResult& point : one.points) {
      section.table.rows.push_back(
          {{NameOf(one.id, point.choice), Tone::kStrong},
           {absl::StrCat(point.label, point.enabled || !point.speedup.has_value() ? "" : " (off)")},
           {FormatPercent(point.time_share)},
           Known(FormatFigure(point.speedup), ToneOf(point.effect)),
           Known(point.speedup.has_value() ? absl::StrCat(point.speedup->num_pairs)
                                           : kNotAvailable),
           Known(TokensText(point)),
           Known(FormatSpeedup(point.ceiling)),
           Known(FormatPercent(point.noise)),
           Known(FormatDetectable(point.detectable_effect)),
           Word(ToWord(point.standing), ToneOf(point.standing)),
           {FormatEffect(point.effect), ToneOf(point.effect)}});
    }
  }
  return section;
}

Section BaselineSection(const Ranking& ranking) {
  Section section{.id = "baseline", .title = "Baseline", .note = "", .table = {}, .items = {}};
  const bool is_predicted = IsPredicted(ranking);
  section.table.columns = {
      {"point", false, 0}, {"time share", true, 3}, {"step (us)", true, 0}, {"tokens/s", true, 0}};
  // A prediction has an interval of its own error, and no samples.
  const std::vector<Column> certainty =
      is_predicted ? std::vector<Column>{{"interval (us)", true, 1}}
                   : std::vector<Column>{
                         {"noise", true, 2}, {"against itself", true, 1}, {"drift", true, 1}};
  const std::vector<Column> rest = {
      {"unique experts", true, 4}, {"imbalance", true, 4}, {"standing", false, 0}};
  for (const std::vector<Column>* more : {&certainty, &rest}) {
    section.table.columns.insert(section.table.columns.end(), more->begin(), more->end());
  }
  for (const BaselinePoint& point : ranking.baseline) {
    std::vector<Cell> row = {{point.label, Tone::kStrong},
                             {FormatPercent(point.time_share)},
                             Known(FormatNumber(point.step_us)),
                             Known(FormatNumber(point.tokens_per_s))};
    if (is_predicted) {
      row.push_back(Known(point.step_low_us.has_value()
                              ? absl::StrCat(FormatNumber(point.step_low_us), " to ",
                                             FormatNumber(point.step_high_us))
                              : kNotAvailable));
    } else {
      row.push_back(Known(FormatPercent(point.noise)));
      row.push_back(Known(FormatFigure(point.against_itself)));
      row.push_back(Known(FormatPercent(point.drift, /*sign=*/true)));
    }
    row.push_back(Known(FormatNumber(point.unique_experts)));
    row.push_back(Known(FormatNumber(point.imbalance)));
    row.push_back(Word(ToWord(point.standing), ToneOf(point.standing)));
    section.table.rows.push_back(std::move(row));
  }
  return section;
}

Section BreakdownSection(const Ranking& ranking) {
  Section section{.id = "breakdown",
                  .title = "Where the step's time goes",
                  .note = "",
                  .table = {},
                  .items = {}};
  if (ranking.breakdown.empty()) {
    section.note = IsPredicted(ranking)
                       ? "n/a: the baseline is not priced at every point."
                       : "n/a: no breakdown of the baseline was measured at every point.";
    return section;
  }
  section.note = absl::StrCat("The baseline's step takes ", FormatNumber(ranking.breakdown_step_us),
                              IsPredicted(ranking) ? " us as predicted" : " us as profiled",
                              ", averaged over the mix; time that no op claims is host.",
                              IsPredicted(ranking) ? ""
                              : ranking.rounds.size() > 1
                                  ? " What accepted interventions make of it is under Rounds."
                                  : " After: n/a until a stack is measured.");
  section.table.columns = {{"category", false, 0}, {"us", true, 0}, {"share", true, 0}};
  for (const BaselinePoint& point : ranking.baseline) {
    section.table.columns.push_back({point.label, true, 2});
  }
  for (const BreakdownShare& part : ranking.breakdown) {
    std::vector<Cell> row = {Word(ToWord(part.category), Tone::kStrong),
                             {FormatNumber(part.us)},
                             {FormatPercent(part.share)}};
    for (const BaselinePoint& point : ranking.baseline) {
      const auto found = std::find_if(
          point.breakdown.begin(), point.breakdown.end(),
          [&part](const BreakdownShare& one) { return one.category == part.category; });
      row.push_back(found == point.breakdown.end() ? Known(kNotAvailable)
                                                   : Known(FormatPercent(found->share)));
    }
    section.table.rows.push_back(std::move(row));
  }
  return section;
}

// Why an intervention is not worth building now; "" when it may be.
std::string WhyNot(const RankedIntervention& one) {
  if (one.ranks_apart && one.mix.has_value()) {
    return absl::StrCat("ranks apart: ", one.reason);
  }
  if (!one.place.has_value()) {
    return absl::StrCat(ToWord(one.standing), one.reason.empty() ? "" : ": ", one.reason);
  }
  if (one.claim_verdict == ClaimVerdict::kImpossible ||
      one.claim_verdict == ClaimVerdict::kRefuted) {
    return absl::StrCat(FormatEffect(one.effect), "; claim ", ToWord(one.claim_verdict), ": ",
                        one.claim_reason);
  }
  if (one.effect != Effect::kFaster) {
    return absl::StrCat(FormatEffect(one.effect), ": ", FormatFigure(one.mix), " in the mix",
                        one.reason.empty() ? "" : "; ", one.reason);
  }
  if (one.mix->estimate <= one.devices_ratio) {
    return absl::StrCat(
        "faster, but on ", one.devices_text, ", which costs more than it saves",
        one.gain.has_value() ? absl::StrCat(": ", GainText(one.gain), " GPU-hours") : "");
  }
  if (one.gain.has_value() && one.gain->net_gpu_hours <= 0) {
    return absl::StrCat("faster, but the effort costs more than it saves: ", GainText(one.gain),
                        " GPU-hours");
  }
  return "";
}

Section WhyNotSection(const Ranking& ranking) {
  Section section{.id = "why-not",
                  .title = "What will not help or is not proven to, and why",
                  .note = "",
                  .table = {},
                  .items = {}};
  section.table.columns = {{"intervention", false, 0}, {"why", false, 0}};
  for (const RankedIntervention& one : ranking.interventions) {
    if (std::string why = WhyNot(one); !why.empty()) {
      section.table.rows.push_back({{one.id, Tone::kStrong}, {std::move(why)}});
    }
  }
  if (section.table.rows.empty()) {
    section.table = {};
    section.note = "Everything that was tried is proven faster.";
  }
  return section;
}

Section ClaimsSection(const Ranking& ranking) {
  Section section{.id = "claims", .title = "Claims", .note = "", .table = {}, .items = {}};
  section.table.columns = {{"intervention", false, 0},
                           {"verdict", false, 0},
                           {"what was compared", false, 0},
                           {"source of the claim", false, 3}};
  for (const RankedIntervention& one : ranking.interventions) {
    if (one.claim.has_value()) {
      section.table.rows.push_back({{one.id, Tone::kStrong},
                                    Word(ToWord(one.claim_verdict), ToneOf(one.claim_verdict)),
                                    {one.claim_reason},
                                    {one.claim->source, Tone::kMuted}});
    }
  }
  if (section.table.rows.empty()) {
    section.table = {};
    section.note = "Nothing was claimed.";
  }
  return section;
}

Section PredictionSection(const Ranking& ranking) {
  Section section{.id = "prediction",
                  .title = "Known before against measured",
                  .note = "",
                  .table = {},
                  .items = {}};
  section.table.columns = {{"intervention", false, 0}, {"prior", false, 0},
                           {"predicted", true, 0},     {"measured", true, 0},
                           {"error", true, 0},         {"source of the prior", false, 3}};
  for (const RankedIntervention& one : ranking.interventions) {
    const bool is_measured = one.standing == Standing::kMeasured;
    if (one.prior.has_value() || (one.predicted_speedup.has_value() && is_measured)) {
      section.table.rows.push_back(
          {{one.id, Tone::kStrong},
           Known(one.prior.has_value() ? one.prior->result : kNotAvailable),
           Known(FormatSpeedup(one.predicted_speedup)),
           Known(is_measured ? FormatFigure(one.mix) : kNotAvailable),
           Known(FormatPercent(one.prediction_error, /*sign=*/true)),
           {one.prior.has_value() ? one.prior->source : "", Tone::kMuted}});
    }
  }
  if (section.table.rows.empty()) {
    section.table = {};
    section.note = "n/a: nothing was both predicted and measured, and no prior is given.";
  }
  return section;
}

Section ListSection(std::string id, std::string title, std::string none,
                    std::vector<std::string> items) {
  Section section{
      .id = std::move(id), .title = std::move(title), .note = "", .table = {}, .items = {}};
  if (items.empty()) {
    section.note = std::move(none);
  }
  section.items = std::move(items);
  return section;
}

Section EnvironmentSection(const Ranking& ranking) {
  Section section{
      .id = "environment", .title = "Environment", .note = "", .table = {}, .items = {}};
  section.table.columns = {{"what", false, 0}, {"value", false, 0}};
  for (const auto& [key, value] : ranking.environment) {
    section.table.rows.push_back({{key, Tone::kStrong}, {value}});
  }
  if (section.table.rows.empty()) {
    section.table = {};
    section.note = "n/a: nothing ran.";
  }
  return section;
}

}  // namespace

Document MakeDocument(const Ranking& ranking) {
  Document document;
  document.title = ranking.campaign_name;
  document.question = ranking.question;
  document.answer = ranking.answer;
  document.sections = {SequenceSection(ranking),
                       RankingSection(ranking),
                       PointsSection(ranking),
                       BaselineSection(ranking),
                       BreakdownSection(ranking),
                       WhyNotSection(ranking),
                       ClaimsSection(ranking),
                       PredictionSection(ranking),
                       ListSection("warnings", "Warnings", "None.", ranking.warnings),
                       EnvironmentSection(ranking),
                       ListSection("assumptions", "Assumptions", "None.", ranking.assumptions)};
  // Behind the ranking, before its details.
  std::vector<Section> rounds = RoundSections(ranking);
  document.sections.insert(document.sections.begin() + 2, std::make_move_iterator(rounds.begin()),
                           std::make_move_iterator(rounds.end()));
  return document;
}

}  // namespace lastflop
