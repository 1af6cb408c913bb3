#pragma once

#include <string>

#include "planner/ranking.h"

// The charts of the HTML report, twice each: a Vega 5 specification, and plain SVG that stands
// where scripts do not run or Vega is missing. Colours are the page's variables: "var(--good)".
namespace lastflop {

struct Chart {
  std::string id;     // Of the element: "chart-speedup".
  std::string label;  // What it shows, for screen readers.
  std::string vega;   // JSON, safe inside a script element.
  std::string svg;
};

// Speedup in the mix with its interval, the claimed range and the ceiling, one line an
// intervention; the band is the minimum effect. Empty id: nothing has a speedup.
Chart SpeedupChart(const Ranking& ranking);

// Shares of the step by category, one stacked bar a point and one for the mix. Empty id: no
// breakdown was measured.
Chart BreakdownChart(const Ranking& ranking);

}  // namespace lastflop
