#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "report/format.h"
#include "report/render.h"

namespace lastflop {
namespace {

constexpr char kHeader[] =
    "campaign,place,id,title,tier,effort_hours,risk,quality,claim_low,claim_high,claim_of,"
    "claim_verdict,point,time_share,standing,effect,speedup,low,high,pairs,origin,"
    "baseline_us,variant_us,baseline_tokens_per_s,variant_tokens_per_s,ceiling,"
    "net_gain_gpu_hours,break_even_gpu_hours,per_hour,fidelity,error,reason,round,role,place_held,"
    "pareto_layer,choice\r\n";

// Fields of one row, in the order of the header. What is not known is an empty field.
class Row {
 public:
  void Text(absl::string_view text) { Add(CsvField(text)); }
  void Number(std::optional<double> value) {
    Add(value.has_value() && std::isfinite(*value) ? absl::StrFormat("%.9g", *value) : "");
  }
  std::string Line() const { return absl::StrCat(absl::StrJoin(fields_, ","), "\r\n"); }

 private:
  void Add(std::string field) { fields_.push_back(std::move(field)); }
  std::vector<std::string> fields_;
};

Row StartRow(const Ranking& ranking, const RankedIntervention& one) {
  Row row;
  row.Text(ranking.campaign_name);
  row.Number(one.place.has_value() ? std::optional<double>(*one.place) : std::nullopt);
  row.Text(one.id);
  row.Text(one.title);
  row.Number(one.tier);
  row.Number(one.effort.likely_hours);
  row.Text(ToWord(one.risk));
  row.Text(ToWord(one.quality));
  row.Number(one.claim.has_value() ? std::optional(one.claim->low) : std::nullopt);
  row.Number(one.claim.has_value() ? one.claim->high : std::nullopt);
  row.Text(one.claim.has_value() ? one.claim->of : "");
  row.Text(ToWord(one.claim_verdict));
  return row;
}

void AddFigure(const std::optional<SpeedupFigure>& figure, Row& row) {
  row.Number(figure.has_value() ? std::optional(figure->estimate) : std::nullopt);
  row.Number(figure.has_value() ? figure->low : std::nullopt);
  row.Number(figure.has_value() ? figure->high : std::nullopt);
  row.Number(figure.has_value() ? std::optional(static_cast<double>(figure->num_pairs))
                                : std::nullopt);
  row.Text(figure.has_value() ? ToWord(figure->origin) : "");
}

void EndRow(std::optional<int> round, absl::string_view role, std::optional<double> place_held,
            std::optional<int> pareto_layer, const std::string& choice, Row& row) {
  row.Number(round.has_value() ? std::optional<double>(*round) : std::nullopt);
  row.Text(role);
  row.Number(place_held);
  row.Number(pareto_layer.has_value() ? std::optional<double>(*pareto_layer) : std::nullopt);
  row.Text(choice);
}

std::string MixLine(const Ranking& ranking, const RankedIntervention& one) {
  Row row = StartRow(ranking, one);
  row.Text("mix");
  row.Number(1);
  row.Text(ToWord(one.standing));
  row.Text(one.effect.has_value() ? ToWord(*one.effect) : "");
  AddFigure(one.mix, row);
  for (int i = 0; i < 4; ++i) {
    row.Number(std::nullopt);  // Times and tokens/s are of a point.
  }
  row.Number(one.ceiling);
  row.Number(one.gain.has_value() ? std::optional(one.gain->net_gpu_hours) : std::nullopt);
  row.Number(one.break_even_gpu_hours);
  row.Number(one.gain_per_hour);
  row.Text(ToWord(one.fidelity));
  row.Number(one.error);
  row.Text(one.reason);
  EndRow(one.accepted_round, one.accepted_round.has_value() ? "accepted" : "", one.place_held,
         one.pareto_layer, one.choice, row);
  return row.Line();
}

std::string PointLine(const Ranking& ranking, const RankedIntervention& one,
                      const PointResult& point) {
  Row row = StartRow(ranking, one);
  row.Text(point.label);
  row.Number(point.time_share);
  row.Text(ToWord(point.standing));
  row.Text(point.effect.has_value() ? ToWord(*point.effect) : "");
  AddFigure(point.speedup, row);
  row.Number(point.baseline_us);
  row.Number(point.variant_us);
  row.Number(point.baseline_tokens_per_s);
  row.Number(point.variant_tokens_per_s);
  row.Number(point.ceiling);
  for (int i = 0; i < 3; ++i) {
    row.Number(std::nullopt);  // Gains are of the mix.
  }
  row.Text(ToWord(point.fidelity));
  row.Number(point.error);
  row.Text(point.reason);
  EndRow(one.accepted_round, one.accepted_round.has_value() ? "accepted" : "", one.place_held,
         one.pareto_layer, point.choice, row);
  return row.Line();
}

// A figure of a round or of the stack, which is of the mix and of nothing else.
std::string RoundLine(const Ranking& ranking, const std::string& id, const std::string& choice,
                      const std::optional<SpeedupFigure>& figure, Standing standing,
                      std::optional<Effect> effect, const std::string& reason,
                      std::optional<int> round, absl::string_view role) {
  constexpr int kFieldsBeforePoint = 9;
  constexpr int kFieldsBeforeReason = 10;
  Row row;
  row.Text(ranking.campaign_name);
  row.Text("");
  row.Text(id);
  for (int i = 0; i < kFieldsBeforePoint; ++i) {
    row.Text("");
  }
  row.Text(round.has_value() ? absl::StrCat("mix of round ", *round) : "mix of the stack");
  row.Number(1);
  row.Text(ToWord(standing));
  row.Text(effect.has_value() ? ToWord(*effect) : "");
  AddFigure(figure, row);
  for (int i = 0; i < kFieldsBeforeReason; ++i) {
    row.Text("");
  }
  row.Text(reason);
  EndRow(round, role, std::nullopt, std::nullopt, choice, row);
  return row.Line();
}

std::string RoundLines(const Ranking& ranking) {
  std::string out;
  for (const RoundSummary& round : ranking.rounds) {
    for (const RoundEntry& one : round.interventions) {
      const char* const role =
          one.is_accepted ? "accepted" : (one.selected_on.has_value() ? "confirm" : "compare");
      out += RoundLine(ranking, one.id, one.choice, one.mix, one.standing, one.effect, one.reason,
                       round.round, role);
    }
  }
  if (ranking.stack.has_value()) {
    const StackSummary& stack = *ranking.stack;
    const auto standing = [](const std::optional<SpeedupFigure>& figure) {
      return figure.has_value() ? Standing::kMeasured : Standing::kNotRun;
    };
    out += RoundLine(ranking, absl::StrJoin(stack.ids, "+"), "", stack.mix, standing(stack.mix),
                     stack.effect, stack.reason, std::nullopt, "stack");
    out += RoundLine(ranking, absl::StrJoin(stack.ids, "+"), "", stack.interaction,
                     standing(stack.interaction), std::nullopt, "", std::nullopt, "interaction");
    for (const LeftOutPart& part : stack.left_out) {
      out += RoundLine(ranking, part.id, "", part.mix, standing(part.mix), part.effect, part.reason,
                       std::nullopt, "leave_one_out");
    }
  }
  return out;
}

}  // namespace

std::string RenderCsv(const Ranking& ranking) {
  std::string out = kHeader;
  for (const RankedIntervention& one : ranking.interventions) {
    out += MixLine(ranking, one);
    for (const PointResult& point : one.points) {
      out += PointLine(ranking, one, point);
    }
  }
  return out + RoundLines(ranking);
}

}  // namespace lastflop
