#pragma once

#include <optional>
#include <string>

// Measured numbers as tables and sentences show them. A number that few pairs tell nothing of can
// be of any size: outside what a reader can use it is written shortly, never as hundreds of digits
// nor as a zero that it is not.
namespace lastflop {

// A speedup without its "x": "1.213", "<0.001", ">1000".
std::string RatioText(double ratio);

// "1.213x (1.198 to 1.229)"; without the interval where an end is not known.
std::string FigureText(double estimate, std::optional<double> low, std::optional<double> high);

// Rounded to a whole number: "12340", "-1900", from 10^9 on "1.2e+09"; "+" with `sign`.
std::string WholeText(double value, bool sign = false);

// "12.3%", from 1000-fold on "6.7e+20%"; "+12.3%" with `sign`.
std::string PercentText(double share, bool sign = false);

}  // namespace lastflop
