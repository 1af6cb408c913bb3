#include "spec/workload_reader.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "spec/map_reader.h"
#include "spec/routing_trace.h"
#include "spec/scalars.h"

namespace lastflop {
namespace {

// Sizes that fit any machine and whose products fit 64 bits.
constexpr int64_t kMostSequences = 10'000'000;
constexpr int64_t kMostTokens = 100'000'000;
constexpr size_t kMostPoints = 2000;
// What three shares written with three digits may miss of 1.
constexpr double kShareSlack = 1.001e-3;

Routing ReadRouting(const YamlValue& value, const std::string& path, const Routing& base,
                    const std::string& directory, Diagnostics& diagnostics) {
  Routing routing = base;
  MapReader reader(value, path, diagnostics);
  const bool has_distribution =
      reader.Optional("distribution", routing.distribution, ParseWord<Distribution>);
  const bool has_exponent =
      reader.Optional("exponent", routing.exponent, NumberIn({.low = 0, .high = 10}));
  int64_t seed = static_cast<int64_t>(routing.seed);
  if (reader.Optional("seed", seed, IntegerIn(0))) {
    routing.seed = static_cast<uint64_t>(seed);
  }
  const bool has_trace = reader.Optional("trace", routing.trace_file, ParseText);
  reader.Finish();
  if (has_trace && !has_distribution) {
    routing.distribution = Distribution::kTrace;
  }
  // A distribution that could not be read has its own error, and may have been meant as zipf.
  const bool is_known = has_distribution || value.Find("distribution") == nullptr;
  if (has_exponent && is_known && routing.distribution != Distribution::kZipf) {
    reader.Error("exponent", absl::StrCat("has no effect under distribution ",
                                          ToWord(routing.distribution), ", only under zipf"));
  }
  if (routing.distribution != Distribution::kTrace) {
    if (has_trace && is_known) {
      reader.Error("trace", absl::StrCat("has no effect under distribution ",
                                         ToWord(routing.distribution), ", only under trace"));
    }
    routing.trace_file.clear();
    routing.trace_popularity.clear();
  } else if (routing.trace_file.empty()) {
    reader.Error("distribution", "trace needs a file: write trace: FILE beside it");
  } else if (has_trace) {
    auto popularity =
        ReadRoutingTraceFile((std::filesystem::path(directory) / routing.trace_file).string());
    if (popularity.ok()) {
      routing.trace_popularity = *std::move(popularity);
    } else {
      diagnostics.Nested(reader.value().Find("trace")->location, reader.PathOf("trace"),
                         popularity.status());
    }
  }
  return routing;
}

// `has_share` says whether the point has a time_share of its own.
Point ReadPoint(const YamlValue& value, const std::string& path, const Routing& routing,
                const std::string& directory, Diagnostics& diagnostics, bool& has_share) {
  Point point;
  point.routing = routing;
  MapReader reader(value, path, diagnostics);
  reader.Optional("phase", point.phase, ParseWord<Phase>);
  reader.Required("batch", point.batch, IntegerIn(1, kMostSequences));
  reader.Required("context", point.context, IntegerIn(1, kMostTokens));
  reader.Optional("time_share", point.time_share, FractionIn({.low = 0, .high = 1}));
  has_share = value.Find("time_share") != nullptr;
  if (const YamlValue* own = reader.Optional("routing")) {
    point.routing = ReadRouting(*own, reader.PathOf("routing"), routing, directory, diagnostics);
  }
  reader.Finish();
  return point;
}

void SettleShares(const YamlValue& list, size_t num_with_share, std::vector<Point>& points,
                  Diagnostics& diagnostics, std::vector<std::string>& warnings) {
  if (num_with_share == 0) {
    for (Point& point : points) {
      point.time_share = 1.0 / static_cast<double>(points.size());
    }
    if (points.size() > 1) {
      warnings.push_back(absl::StrCat("no time_share is given: the ", points.size(),
                                      " points count equally in the mix"));
    }
    return;
  }
  if (num_with_share < points.size()) {
    diagnostics.Error(list.location, "workload.points",
                      absl::StrCat("time_share stands at ", num_with_share, " of ", points.size(),
                                   " points; give it to all of them or to none"));
    return;
  }
  double sum = 0;
  for (const Point& point : points) {
    sum += point.time_share;
  }
  if (std::abs(sum - 1) > kShareSlack) {
    diagnostics.Error(list.location, "workload.points",
                      absl::StrCat("time_share sums to ", sum, "; it must sum to 1"));
    return;
  }
  for (Point& point : points) {
    point.time_share /= sum;
  }
}

// Appends `tags[i]` to every point whose label is not its own.
void TagTwins(const std::vector<std::string>& tags, std::vector<Point>& points) {
  std::map<std::string, int> num_called;
  for (const Point& point : points) {
    ++num_called[point.Label()];
  }
  for (size_t i = 0; i < points.size(); ++i) {
    if (num_called[points[i].Label()] > 1) {
      absl::StrAppend(&points[i].tag, points[i].tag.empty() ? "" : " ", tags[i]);
    }
  }
}

// Points that differ in their routing alone are told apart by it; equal points are an error.
void NameApart(const YamlValue& list, std::vector<Point>& points, Diagnostics& diagnostics) {
  std::vector<std::string> routings;
  std::vector<std::string> seeds;
  for (const Point& point : points) {
    routings.push_back(point.routing.Label());
    seeds.push_back(absl::StrCat("seed ", point.routing.seed));
  }
  TagTwins(routings, points);
  TagTwins(seeds, points);
  std::map<std::string, size_t> first_called;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [first, is_new] = first_called.emplace(points[i].Label(), i);
    if (!is_new) {
      diagnostics.Error(
          list.items[i].location, IndexPath("workload.points", i),
          absl::StrCat("is the same as ", IndexPath("workload.points", first->second), " (",
                       points[i].Label(), "): give it once, with both time_shares"));
    }
  }
}

}  // namespace

std::vector<Point> ReadWorkload(const YamlValue& value, const std::string& directory,
                                Diagnostics& diagnostics, std::vector<std::string>& warnings) {
  MapReader reader(value, "workload", diagnostics);
  Routing routing;
  if (const YamlValue* given = reader.Optional("routing")) {
    routing = ReadRouting(*given, reader.PathOf("routing"), routing, directory, diagnostics);
  }
  std::vector<Point> points;
  const YamlValue* list = reader.Required("points");
  reader.Finish();
  if (list == nullptr) {
    return points;
  }
  if (list->kind != YamlValue::Kind::kList || list->items.empty()) {
    diagnostics.Error(list->location, "workload.points",
                      absl::StrCat(Describe(*list), " must be a list of at least one point"));
    return points;
  }
  if (list->items.size() > kMostPoints) {
    diagnostics.Error(
        list->location, "workload.points",
        absl::StrCat("has ", list->items.size(), " points; at most ", kMostPoints, " are read"));
    return points;
  }
  size_t num_with_share = 0;
  for (size_t i = 0; i < list->items.size(); ++i) {
    bool has_share = false;
    points.push_back(ReadPoint(list->items[i], IndexPath("workload.points", i), routing, directory,
                               diagnostics, has_share));
    num_with_share += has_share ? 1 : 0;
  }
  if (diagnostics.ok()) {
    SettleShares(*list, num_with_share, points, diagnostics, warnings);
    NameApart(*list, points, diagnostics);
  }
  return points;
}

void CheckTraces(const YamlValue& value, const std::vector<Point>& points, const Model& model,
                 Diagnostics& diagnostics) {
  for (const Point& point : points) {
    if (point.routing.distribution != Distribution::kTrace) {
      continue;
    }
    const auto& popularity = point.routing.trace_popularity;
    const auto num_layers = static_cast<int64_t>(popularity.size());
    const auto num_experts = static_cast<int64_t>(popularity[0].size());
    if (num_experts != model.num_experts ||
        (num_layers != 1 && num_layers != model.num_moe_layers() &&
         num_layers != model.num_layers)) {
      diagnostics.Error(
          value.location, "workload.routing",
          absl::StrCat(point.routing.trace_file, " has ", num_layers, " layers of ", num_experts,
                       " experts; the model has ", model.num_layers, " layers, ",
                       model.num_moe_layers(), " of them MoE layers of ", model.num_experts));
      return;
    }
  }
}

}  // namespace lastflop
