#pragma once

// The fixed parts of the HTML report: its look, and the script that draws the charts.
namespace lastflop {

extern const char kPageStyle[];
extern const char kChartScript[];

}  // namespace lastflop
