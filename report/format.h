#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "common/one_line.h"  // What a report shows passes OneLine().
#include "planner/ranking.h"

// How numbers and words of a report are written for people. What is not known is "n/a".
namespace lastflop {

inline constexpr char kNotAvailable[] = "n/a";

// "1.213x", "<0.001x", ">1000x"; "n/a" when absent.
std::string FormatSpeedup(std::optional<double> speedup);

// "1.213x (1.198 to 1.229)", without the interval where there is none.
std::string FormatFigure(const std::optional<SpeedupFigure>& figure);

// "1.2-1.5x of moe, batch 64-", "none".
std::string FormatClaim(const std::optional<Claim>& claim);

// "45m", "6h", "3d", "2w": working time, d = 8 h and w = 5 d; the largest unit that is exact, else
// hours.
std::string FormatHours(double hours);

// Rounded to an integer with thousands separated by commas: "12,340", "-1,900", "+" with `sign`;
// "1.2e+09" from there on.
std::string FormatCount(std::optional<double> value, bool sign = false);

// "1,234.5" for tokens/s and us: one decimal under 1000, none from 1000 on.
std::string FormatNumber(std::optional<double> value);

// "12.3%", "6.7e+20%"; with `sign` "+12.3%".
std::string FormatPercent(std::optional<double> share, bool sign = false);

// The least effect that noise does not hide: "1.2%", or ">100%" where it hides whatever there is.
std::string FormatDetectable(std::optional<double> effect);

// The word, or "n/a".
std::string FormatEffect(std::optional<Effect> effect);

// `&`, `<`, `>` and both quotes as entities; as PlainLines() beside that.
std::string EscapeHtml(absl::string_view text);

// OneLine(text) as a cell or a line of Markdown shows it literally.
std::string EscapeMarkdown(absl::string_view text);

// A field of RFC 4180: quoted when it holds a comma, quote or line break, or starts or ends with a
// blank. A reader gets back PlainLines(text) exactly, also one that starts with '='.
std::string CsvField(absl::string_view text);

}  // namespace lastflop
