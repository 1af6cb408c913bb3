#pragma once

#include <string>
#include <vector>

namespace lastflop {

// Reads Vega 5 as one script that defines `vega` in a page: `vega.min.js` from the first of
// `directories` that has it, else put together from the package's modules (Debian's libjs-vega has
// only these). "" when no directory has either: charts are then plain SVG.
std::string ReadVega(const std::vector<std::string>& directories);

// Where Vega may be: `share_directory`/vega (the installed tree), then the distribution's.
std::vector<std::string> VegaDirectories(const std::string& share_directory);

}  // namespace lastflop
