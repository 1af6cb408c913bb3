#include "planner/pareto.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace lastflop {

std::vector<int> ParetoLayers(std::span<const CostAndSpeedup> options) {
  std::vector<int> layers(options.size(), 0);
  std::vector<size_t> order(options.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Cheapest first, and of equal effort the fastest: what dominates comes before.
  std::sort(order.begin(), order.end(), [&options](size_t a, size_t b) {
    if (options[a].effort_hours != options[b].effort_hours) {
      return options[a].effort_hours < options[b].effort_hours;
    }
    return options[a].speedup > options[b].speedup;
  });
  // By layer, the last that joined it: the fastest of the layer so far, as speedups only grow
  // within one. They fall from layer to layer, so that the first that does not dominate is found by
  // halving.
  std::vector<size_t> last;
  for (const size_t i : order) {
    if (!(options[i].speedup > 1)) {
      continue;
    }
    const auto dominates = [&options, i](size_t other) {
      const bool are_equal = options[other].effort_hours == options[i].effort_hours &&
                             options[other].speedup == options[i].speedup;
      return options[other].speedup >= options[i].speedup && !are_equal;
    };
    const auto layer = std::partition_point(last.begin(), last.end(), dominates);
    layers[i] = static_cast<int>(layer - last.begin()) + 1;
    if (layer == last.end()) {
      last.push_back(i);
    } else {
      *layer = i;
    }
  }
  return layers;
}

}  // namespace lastflop
