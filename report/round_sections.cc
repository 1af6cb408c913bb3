#include "report/round_sections.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "report/format.h"

namespace lastflop {
namespace {

Tone EffectTone(std::optional<Effect> effect) {
  if (effect == Effect::kFaster) return Tone::kGood;
  if (effect == Effect::kSlower) return Tone::kBad;
  if (effect == Effect::kUndecided) return Tone::kUnsure;
  return effect.has_value() ? Tone::kPlain : Tone::kMuted;
}

Cell Figure(const std::optional<SpeedupFigure>& figure, Tone tone = Tone::kPlain) {
  return {FormatFigure(figure), figure.has_value() ? tone : Tone::kMuted};
}

Cell Number(std::string text) {
  const bool is_known = text != kNotAvailable;
  return {std::move(text), is_known ? Tone::kPlain : Tone::kMuted};
}

std::string OutcomeOf(const RoundSummary& round, const RoundEntry& entry) {
  if (entry.is_accepted) {
    return round.together.empty()
               ? "accepted"
               : absl::StrCat("accepted, with ", absl::StrJoin(round.together, ", "));
  }
  return entry.selected_on.has_value() ? "measured again, not accepted" : "";
}

Section RoundsSection(const Ranking& ranking) {
  Section section{
      .id = "rounds",
      .title = "Rounds",
      .note = absl::StrCat(
          "Each round compares with the baseline that the rounds before it accepted. "
          "What a round accepts is measured again on fresh seeds, and that is its "
          "figure",
          ranking.rounds_note.empty() ? "." : absl::StrCat("; ", ranking.rounds_note, ".")),
      .table = {},
      .items = {}};
  section.table.columns = {{"round", true, 0},       {"intervention", false, 0},
                           {"outcome", false, 0},    {"speedup in the mix", true, 0},
                           {"selected on", true, 2}, {"effect", false, 1},
                           {"standing", false, 2},   {"ceiling", true, 4}};
  for (const RoundSummary& round : ranking.rounds) {
    for (const RoundEntry& one : round.interventions) {
      section.table.rows.push_back(
          {{absl::StrCat(round.round), Tone::kMuted},
           {NameOf(one.id, one.choice), one.is_accepted ? Tone::kStrong : Tone::kPlain},
           {OutcomeOf(round, one), one.is_accepted ? Tone::kGood : Tone::kMuted},
           Figure(one.mix, EffectTone(one.effect)),
           Figure(one.selected_on),
           {FormatEffect(one.effect), EffectTone(one.effect)},
           {std::string(ToWord(one.standing)),
            one.standing == Standing::kMeasured ? Tone::kPlain : Tone::kMuted},
           Number(FormatSpeedup(one.ceiling))});
      if (!one.mix.has_value() && !one.reason.empty()) {
        section.items.push_back(
            absl::StrCat("round ", round.round, ", ", one.id, ": ", one.reason));
      }
    }
  }
  return section;
}

// "today", "after a", "after b": of which baseline a breakdown is.
std::vector<std::string> BaselineNames(const Ranking& ranking) {
  std::vector<std::string> names = {"today"};
  for (const RoundSummary& round : ranking.rounds) {
    if (!round.accepted.empty()) {
      names.push_back(absl::StrCat("after ", round.accepted));
    }
  }
  names.resize(ranking.rounds.size(), "after");
  return names;
}

std::string PartText(const RoundSummary& round, OpCategory category) {
  for (const BreakdownShare& part : round.breakdown) {
    if (part.category == category) {
      return absl::StrCat(FormatNumber(part.us), " (", FormatPercent(part.share), ")");
    }
  }
  return kNotAvailable;
}

Section ChangeSection(const Ranking& ranking) {
  Section section{.id = "round-breakdown",
                  .title = "Where the time goes, round by round",
                  .note = "Microseconds of the average step over the mix, and their share of it.",
                  .table = {},
                  .items = {}};
  section.table.columns = {{"category", false, 0}};
  std::vector<Cell> total = {{"step", Tone::kStrong}};
  const std::vector<std::string> names = BaselineNames(ranking);
  for (size_t i = 0; i < ranking.rounds.size(); ++i) {
    section.table.columns.push_back({names[i], true, 0});
    total.push_back(Number(FormatNumber(ranking.rounds[i].step_us)));
  }
  section.table.rows.push_back(std::move(total));
  std::vector<OpCategory> categories;
  for (const RoundSummary& round : ranking.rounds) {
    for (const BreakdownShare& part : round.breakdown) {
      if (std::find(categories.begin(), categories.end(), part.category) == categories.end()) {
        categories.push_back(part.category);
      }
    }
  }
  for (const OpCategory category : categories) {
    std::vector<Cell> row = {{std::string(ToWord(category)), Tone::kPlain}};
    for (const RoundSummary& round : ranking.rounds) {
      row.push_back(Number(PartText(round, category)));
    }
    section.table.rows.push_back(std::move(row));
  }
  return section;
}

Section StackSection(const StackSummary& stack) {
  Section section{.id = "stack",
                  .title = "The stack",
                  .note =
                      "Everything accepted, together against today's baseline; then what each "
                      "part still gives on top of the others. An interaction under 1 says that "
                      "the parts get in each other's way.",
                  .table = {},
                  .items = {}};
  section.table.columns = {{"what", false, 0},
                           {"speedup in the mix", true, 0},
                           {"effect", false, 0},
                           {"what was compared", false, 1}};
  section.table.rows.push_back({{absl::StrJoin(stack.ids, " + "), Tone::kStrong},
                                Figure(stack.mix, EffectTone(stack.effect)),
                                {FormatEffect(stack.effect), EffectTone(stack.effect)},
                                {stack.reason}});
  if (stack.ids.size() > 1) {
    section.table.rows.push_back({{"product of the parts alone", Tone::kPlain},
                                  Figure(stack.product),
                                  {"", Tone::kMuted},
                                  {"modelled: multiplied at each point, then mixed by time"}});
    section.table.rows.push_back({{"interaction", Tone::kPlain},
                                  Figure(stack.interaction),
                                  {"", Tone::kMuted},
                                  {"the stack over the product"}});
  }
  for (const LeftOutPart& part : stack.left_out) {
    section.table.rows.push_back({{absl::StrCat(part.id, " on top of the rest"), Tone::kPlain},
                                  Figure(part.mix, EffectTone(part.effect)),
                                  {FormatEffect(part.effect), EffectTone(part.effect)},
                                  {part.reason}});
  }
  return section;
}

}  // namespace

std::vector<Section> RoundSections(const Ranking& ranking) {
  std::vector<Section> sections;
  if (ranking.rounds.empty()) {
    return sections;
  }
  sections.push_back(RoundsSection(ranking));
  if (ranking.rounds.size() > 1) {
    sections.push_back(ChangeSection(ranking));
  }
  if (ranking.stack.has_value()) {
    sections.push_back(StackSection(*ranking.stack));
  }
  return sections;
}

}  // namespace lastflop
