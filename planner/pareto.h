#pragma once

#include <span>
#include <vector>

// What is worth looking at whatever an hour is worth.
namespace lastflop {

struct CostAndSpeedup {
  double effort_hours = 0;
  double speedup = 1;  // That counts: 1 when none is proven.
};

// The layer of each: 1 is the Pareto front, of which nothing else is at least as fast and at least
// as cheap and better in one of the two; 2 is the front of what is left, and so on. Equal ones
// share a layer. 0: no faster than doing nothing, which costs nothing. O(n log n).
std::vector<int> ParetoLayers(std::span<const CostAndSpeedup> options);

}  // namespace lastflop
