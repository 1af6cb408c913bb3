#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "planner/ranking.h"

// How numbers and words of a report are written for people. What is not known is "n/a".
namespace lastflop {

inline constexpr char kNotAvailable[] = "n/a";

// "1.213x"; "n/a" when absent.
std::string FormatSpeedup(std::optional<double> speedup);

// "1.213x (1.198 to 1.229)", without the interval where there is none.
std::string FormatFigure(const std::optional<SpeedupFigure>& figure);

// "1.2-1.5x of moe, batch 64-", "none".
std::string FormatClaim(const std::optional<Claim>& claim);

// "45m", "6h", "3d", "2w": working time, d = 8 h and w = 5 d; the largest unit that is exact, else
// hours.
std::string FormatHours(double hours);

// Rounded to an integer with thousands separated by commas: "12,340", "-1,900", "+" with `sign`.
std::string FormatCount(std::optional<double> value, bool sign = false);

// "1,234.5" for tokens/s and us: one decimal under 1000, none from 1000 on.
std::string FormatNumber(std::optional<double> value);

// "12.3%"; with `sign` "+12.3%".
std::string FormatPercent(std::optional<double> share, bool sign = false);

// The word, or "n/a".
std::string FormatEffect(std::optional<Effect> effect);

// `text` on one line for a terminal: control characters, which could move the cursor or colour the
// screen, and line breaks become spaces.
std::string OneLine(absl::string_view text);

// `&`, `<`, `>` and both quotes as entities.
std::string EscapeHtml(absl::string_view text);

// Text as a cell or a line of Markdown shows it literally; on one line.
std::string EscapeMarkdown(absl::string_view text);

// A field of RFC 4180: quoted when it holds a comma, quote or line break, or starts or ends with a
// blank. Exact: a reader gets back the same text, also one that starts with '='.
std::string CsvField(absl::string_view text);

}  // namespace lastflop
