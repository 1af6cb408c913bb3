#include "planner/cost/expert_counts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/numbers.h"
#include "common/status_macros.h"
#include "planner/cost/load_estimate.h"
#include "planner/cost/units.h"

namespace lastflop {
namespace {

constexpr int kNumSpreads = 24;
constexpr uint64_t kSeed = 97;
constexpr double kTouched = 0.5;  // Fractions under it are a share of an expert that others have.

using Draws = std::vector<std::vector<double>>;

std::vector<double> Balanced(double pairs, size_t local_experts) {
  std::vector<double> counts(local_experts, 0);
  const auto touched =
      static_cast<size_t>(std::clamp(std::round(pairs), 1.0, static_cast<double>(local_experts)));
  std::fill_n(counts.begin(), touched, pairs / static_cast<double>(touched));
  return counts;
}

// Loads of a power law between its ends, at equally likely quantiles, summing to `pairs` before
// they are rounded.
std::vector<double> PowerLaw(double exponent, double tokens, double pairs, size_t experts) {
  const bool is_dense = pairs > static_cast<double>(experts);
  const double low = is_dense ? 1 : 0.01;
  const double high = is_dense ? std::max(tokens * 0.8, 1.001) : 2;
  std::vector<double> loads(experts);
  for (size_t e = 0; e < experts; ++e) {
    const double u = (static_cast<double>(e) + 0.5) / static_cast<double>(experts);
    if (std::abs(exponent - 1) < 1e-6) {
      loads[e] = low * std::pow(high / low, u);
    } else {
      const double power = 1 - exponent;
      loads[e] = std::pow((std::pow(high, power) - std::pow(low, power)) * u + std::pow(low, power),
                          1 / power);
    }
  }
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  for (double& load : loads) {
    load = std::min(std::round(load / sum * pairs), tokens);
  }
  return loads;
}

// Gives what rounding lost (or gained) to the experts of a rank: one pair each to idle ones first.
void Settle(std::vector<double>& counts, double missing) {
  if (missing < 0) {
    const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
    const double factor = sum > 0 ? std::max(0.0, 1 + missing / sum) : 1;
    for (double& count : counts) {
      count *= factor;
    }
    return;
  }
  auto fill = static_cast<int64_t>(std::round(missing));
  for (double& count : counts) {
    if (fill > 0 && count == 0) {
      count = 1;
      missing -= 1;
      --fill;
    }
  }
  for (double& count : counts) {
    count += std::max(0.0, missing) / static_cast<double>(counts.size());
  }
}

// The part of `loads` that the most loaded of `ep` ranks has, under random spreads of experts.
Draws LoadedRanks(const std::vector<double>& loads, int64_t ep, double pairs) {
  std::mt19937_64 random(kSeed);
  const double missing = (pairs - std::accumulate(loads.begin(), loads.end(), 0.0)) / ToDouble(ep);
  const size_t local = loads.size() / static_cast<size_t>(ep);
  Draws draws;
  for (int spread = 0; spread < (ep > 1 ? kNumSpreads : 1); ++spread) {
    std::vector<double> shuffled = loads;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    std::vector<double> most;
    double most_pairs = -1;
    for (size_t rank = 0; rank < static_cast<size_t>(ep); ++rank) {
      const auto begin = shuffled.begin() + static_cast<std::ptrdiff_t>(rank * local);
      const auto end = begin + static_cast<std::ptrdiff_t>(local);
      if (const double sum = std::accumulate(begin, end, 0.0); sum > most_pairs) {
        most_pairs = sum;
        most.assign(begin, end);
      }
    }
    Settle(most, missing);
    draws.push_back(std::move(most));
  }
  return draws;
}

// Pairs of each expert drawn around its expected number.
Draws DrawnRanks(const std::vector<double>& inclusion, int64_t tokens, int64_t ep) {
  std::mt19937_64 random(kSeed);
  Draws draws;
  for (int draw = 0; draw < kNumSpreads; ++draw) {
    std::vector<double> counts(inclusion.size());
    for (size_t e = 0; e < inclusion.size(); ++e) {
      std::binomial_distribution<int64_t> chosen(tokens, std::min(1.0, inclusion[e]));
      counts[e] = ToDouble(chosen(random));
    }
    std::shuffle(counts.begin(), counts.end(), random);
    std::vector<double> most;
    for (int64_t rank = 0; rank < ep; ++rank) {
      const size_t local = counts.size() / static_cast<size_t>(ep);
      const auto begin =
          counts.begin() + static_cast<std::ptrdiff_t>(rank) * static_cast<std::ptrdiff_t>(local);
      const auto end = begin + static_cast<std::ptrdiff_t>(local);
      if (most.empty() ||
          std::accumulate(begin, end, 0.0) > std::accumulate(most.begin(), most.end(), 0.0)) {
        most.assign(begin, end);
      }
    }
    draws.push_back(std::move(most));
  }
  return draws;
}

absl::StatusOr<double> NumberAfter(absl::string_view distribution, absl::string_view prefix) {
  const absl::StatusOr<double> number = ParseNumber(distribution.substr(prefix.size()));
  if (!number.ok() || *number < 0 || *number > 10) {
    return absl::InvalidArgumentError(absl::StrCat("distribution \"", distribution,
                                                   "\": a number from 0 to 10 follows ", prefix));
  }
  return number;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> ExpertPairs(absl::string_view distribution,
                                                             int64_t tokens, int64_t experts,
                                                             int64_t topk, int64_t ep) {
  if (ep < 1 || experts < 1 || experts % ep != 0 || topk < 1 || topk > experts || tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts=", experts, ", ep=", ep, ", topk=", topk, ", tokens=", tokens,
                     ": ep divides the experts, topk is at most the experts, all are at least 1"));
  }
  const double pairs = ToDouble(tokens) * ToDouble(topk);
  const auto num_experts = static_cast<size_t>(experts);
  if (distribution == "balanced") {
    return Draws{Balanced(pairs / ToDouble(ep), num_experts / static_cast<size_t>(ep))};
  }
  if (absl::StartsWith(distribution, "power_law_")) {
    LASTFLOP_ASSIGN_OR_RETURN(const double exponent, NumberAfter(distribution, "power_law_"));
    return LoadedRanks(PowerLaw(exponent, ToDouble(tokens), pairs, num_experts), ep, pairs);
  }
  double exponent = 0;
  if (absl::StartsWith(distribution, "zipf_")) {
    LASTFLOP_ASSIGN_OR_RETURN(exponent, NumberAfter(distribution, "zipf_"));
  } else if (distribution != "uniform") {
    return absl::InvalidArgumentError(absl::StrCat(
        "distribution \"", distribution,
        "\" is unknown; there are balanced, uniform, power_law_EXPONENT, zipf_EXPONENT"));
  }
  std::vector<double> popularity(num_experts);
  for (size_t e = 0; e < num_experts; ++e) {
    popularity[e] = std::pow(static_cast<double>(e + 1), -exponent);
  }
  return DrawnRanks(InclusionByPopularity(popularity, topk), tokens, ep);
}

ExpertCounts CountTiles(const std::vector<std::vector<double>>& draws, double tile_rows) {
  ExpertCounts mean;
  for (const std::vector<double>& counts : draws) {
    double unique = 0;
    double tiles = 0;
    for (const double count : counts) {
      mean.pairs += count;
      if (count >= kTouched) {
        unique += 1;
        tiles += std::ceil(count / tile_rows - 1e-2);
      }
    }
    mean.unique_experts += std::max(1.0, unique);
    mean.tiles += std::max(1.0, tiles);
  }
  const auto num = static_cast<double>(std::max<size_t>(draws.size(), 1));
  return {.pairs = mean.pairs / num,
          .unique_experts = mean.unique_experts / num,
          .tiles = mean.tiles / num};
}

}  // namespace lastflop
