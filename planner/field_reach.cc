#include "planner/field_reach.h"

#include <vector>

#include "absl/strings/match.h"

namespace lastflop {
namespace {

using Kind = FieldReach::Kind;

struct Row {
  absl::string_view prefix;  // Of the path; the first row that fits counts.
  FieldReach reach;
};

const std::vector<Row>& Rows() {
  static const auto& rows = *new std::vector<Row>{
      {"decode.speculative", {Kind::kApart, {}}},
      {"moe.l2_pin", {Kind::kApart, {}}},
      // Another kernel computes all products of the experts anew, in the same shapes.
      {"moe.kernel", {Kind::kBounded, {OpCategory::kMoe, OpCategory::kDequant}}},
      {"moe.cache_hint", {Kind::kBounded, {OpCategory::kMoe, OpCategory::kDequant}}},
      // Ranks wait in the collective after the experts for the one with most of them.
      {"moe.redundant_experts", {Kind::kBounded, {OpCategory::kMoe, OpCategory::kCollective}}},
      {"moe.", {Kind::kOps, {}}},
      {"parallel.", {Kind::kOps, {}}},
      {"attention.", {Kind::kOps, {}}},
      {"collectives.fuse_norm", {Kind::kBounded, {OpCategory::kCollective, OpCategory::kNorm}}},
      {"collectives.fuse_finalize", {Kind::kBounded, {OpCategory::kCollective, OpCategory::kMoe}}},
      {"collectives.", {Kind::kBounded, {OpCategory::kCollective}}},
      {"launch.graph", {Kind::kGaps, {}}},
      {"launch.steps", {Kind::kGaps, {}}},
      {"launch.host_us", {Kind::kGaps, {}}},
      // launch.dependent lets kernels begin in the tails of others, process.env may do anything.
  };
  return rows;
}

}  // namespace

FieldReach ReachOf(absl::string_view path, absl::string_view to) {
  if (path == "overlap") {
    // Decode beside prefill shares the device with what no step here has.
    return to == "prefill_decode" ? FieldReach{}
                                  : FieldReach{Kind::kHidden, {OpCategory::kCollective}};
  }
  for (const Row& row : Rows()) {
    if (absl::StartsWith(path, row.prefix)) {
      return row.reach;
    }
  }
  return {};
}

}  // namespace lastflop
