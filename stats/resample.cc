#include "stats/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <unordered_map>

#include "common/random.h"

namespace lastflop {
namespace {

// Keeps the bootstrap's numbers apart from other users of the same seed.
constexpr uint64_t kBootstrapStream = 0x626f6f74;

template <typename Key>
std::vector<PairSums> SumBy(std::span<const Pair> pairs, Key key) {
  std::vector<PairSums> sums;
  std::unordered_map<int64_t, size_t> index_of;
  for (const Pair& pair : pairs) {
    const auto [entry, is_new] = index_of.try_emplace(key(pair), sums.size());
    if (is_new) {
      sums.emplace_back();
    }
    PairSums& sum = sums[entry->second];
    sum.baseline_us += pair.baseline_us;
    sum.variant_us += pair.variant_us;
    ++sum.num_pairs;
  }
  return sums;
}

PairSums Total(std::span<const PairSums> sums) {
  PairSums total;
  for (const PairSums& sum : sums) {
    total.baseline_us += sum.baseline_us;
    total.variant_us += sum.variant_us;
    total.num_pairs += sum.num_pairs;
  }
  return total;
}

double Variance(std::span<const double> values) {
  double mean = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
  }
  double sum_of_squares = 0;
  for (const double value : values) {
    sum_of_squares += (value - mean) * (value - mean);
  }
  return sum_of_squares / static_cast<double>(values.size() - 1);
}

}  // namespace

std::vector<Pair> WeighLaunchesEqually(std::span<const Pair> pairs) {
  std::unordered_map<int, int> num_pairs_of;
  for (const Pair& pair : pairs) {
    ++num_pairs_of[pair.launch];
  }
  std::vector<Pair> weighed(pairs.begin(), pairs.end());
  for (Pair& pair : weighed) {
    pair.baseline_us /= num_pairs_of[pair.launch];
    pair.variant_us /= num_pairs_of[pair.launch];
  }
  return weighed;
}

std::vector<PairSums> SumByLaunch(std::span<const Pair> pairs) {
  return SumBy(pairs, [](const Pair& pair) { return static_cast<int64_t>(pair.launch); });
}

std::vector<PairSums> SumByDraw(std::span<const Pair> pairs) {
  return SumBy(pairs, [](const Pair& pair) { return pair.draw; });
}

double LaunchVariance(std::span<const PairSums> launches) {
  const PairSums total = Total(launches);
  std::vector<double> without;
  without.reserve(launches.size());
  for (size_t left_out = 0; left_out < launches.size(); ++left_out) {
    // Summed anew: subtracting a dominant launch from the total would leave rounding errors.
    PairSums rest;
    for (size_t i = 0; i < launches.size(); ++i) {
      if (i != left_out) {
        rest.baseline_us += launches[i].baseline_us;
        rest.variant_us += launches[i].variant_us;
      }
    }
    without.push_back(
        std::log((rest.baseline_us / total.baseline_us) / (rest.variant_us / total.variant_us)));
  }
  const auto n = static_cast<double>(launches.size());
  return (n - 1) * (n - 1) / n * Variance(without);
}

double DrawVariance(std::span<const PairSums> draws, int num_replicates, uint64_t seed) {
  const size_t num_draws = draws.size();
  const auto block =
      static_cast<size_t>(std::max(1L, std::lround(std::cbrt(static_cast<double>(num_draws)))));
  std::vector<double> log_ratios;
  log_ratios.reserve(static_cast<size_t>(num_replicates));
  uint64_t counter = 0;
  for (int replicate = 0; replicate < num_replicates; ++replicate) {
    double baseline_us = 0;
    double variant_us = 0;
    for (size_t num_taken = 0; num_taken < num_draws; num_taken += block) {
      const size_t length = std::min(block, num_draws - num_taken);
      const uint64_t bits = CounterRandom(seed, kBootstrapStream, counter++) >> 32;
      auto index = static_cast<size_t>((bits * num_draws) >> 32);
      for (size_t i = 0; i < length; ++i) {
        baseline_us += draws[index].baseline_us;
        variant_us += draws[index].variant_us;
        index = index + 1 == num_draws ? 0 : index + 1;
      }
    }
    log_ratios.push_back(std::log(baseline_us / variant_us));
  }
  const auto n = static_cast<double>(num_draws);
  return n / (n - 1) * Variance(log_ratios);
}

double PairVariance(std::span<const Pair> pairs) {
  double baseline_us = 0;
  double variant_us = 0;
  for (const Pair& pair : pairs) {
    baseline_us += pair.baseline_us;
    variant_us += pair.variant_us;
  }
  double sum_of_squares = 0;
  for (const Pair& pair : pairs) {
    const double influence = pair.baseline_us / baseline_us - pair.variant_us / variant_us;
    sum_of_squares += influence * influence;
  }
  const auto n = static_cast<double>(pairs.size());
  return n / (n - 1) * sum_of_squares;
}

}  // namespace lastflop
