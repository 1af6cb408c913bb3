#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/machine.h"
#include "common/model.h"
#include "common/plan.h"
#include "common/words.h"

namespace lastflop {

// Which experts the tokens of a step go to. A draw of it is made per pair by step/routing.h.
struct Routing {
  Distribution distribution = Distribution::kUniform;
  double exponent = 1.0;  // zipf: popularity of the r-th expert ~ r^-exponent, permuted per layer.
  uint64_t seed = 1;
  std::string trace_file;  // trace: as written in the campaign.
  // trace: expert popularity counts per layer, [layer][expert], read by spec/.
  std::vector<std::vector<double>> trace_popularity;

  // "zipf 1.2", "uniform", "trace counts.csv".
  std::string Label() const;
  // "zipf 1.2 seed 1".
  std::string LabelWithSeed() const;
};

// One workload point.
struct Point {
  Phase phase = Phase::kDecode;
  int64_t batch = 0;      // Concurrent sequences over the whole deployment.
  int64_t context = 0;    // decode: tokens in the cache; prefill: prompt tokens per sequence.
  double time_share = 0;  // Of today's serving time; shares of a campaign sum to 1.
  Routing routing;        // The workload's, unless the point overrides it.
  std::string tag;        // Its routing in words where another point differs in that alone.

  // "decode b64 c4096", and the tag where there is one: how reports name a point. No two points of
  // a campaign have the same.
  std::string Label() const;
  // Tokens that enter the first layer: batch for decode, batch * context for prefill.
  int64_t num_tokens() const;
};

struct Effort {
  double low_hours = 0;
  double likely_hours = 0;
  double high_hours = 0;
};

// What somebody says an intervention gives.
struct Claim {
  double low = 0;  // Speedup, 1.2 = +20%.
  std::optional<double> high;
  std::string of = "step";           // step | moe | op:NAME
  std::optional<int64_t> batch_low;  // Inclusive range of batches it is claimed for.
  std::optional<int64_t> batch_high;
  std::string source;

  // Whether it speaks of points with this batch.
  bool IsOfBatch(int64_t batch) const {
    return batch >= batch_low.value_or(batch) && batch <= batch_high.value_or(batch);
  }
};

struct Prior {
  std::string result;
  std::string source;
};

struct FieldSetting {
  std::string path;   // A PlanFields() path.
  std::string value;  // Canonical text of the value.
};

struct Intervention {
  std::string id;
  std::string title;
  int tier = 1;
  Effort effort;
  Risk risk = Risk::kMedium;
  Quality quality = Quality::kExact;
  Switchable switchable = Switchable::kDeployment;
  std::optional<Claim> claim;
  std::optional<Prior> prior;
  std::vector<std::string> needs;
  std::vector<std::string> excludes;
  std::vector<FieldSetting> set;
  std::vector<std::pair<std::string, std::vector<std::string>>> try_values;  // The small sweep.
  // Why it cannot run (arithmetic), found by validation; it is then kept and reported as infeasible
  // at every point (empty: feasible as far as the plan alone tells).
  std::string infeasible_reason;
};

// One cell of the campaign that cannot run: found by validation (spec/ with the checks of step/),
// kept with its arithmetic so that it is reported and never dispatched.
struct Infeasible {
  std::string intervention_id;  // kBaselineId: the baseline itself does not fit this point.
  std::string choice;           // As TrialSpec::choice.
  int64_t point_index = -1;     // -1: at every point.
  std::string reason;
};

struct MeasureOptions {
  int64_t launches = 3;
  int64_t min_pairs = 30;                    // Over all launches.
  double half_width = 0.005;                 // Of the interval of the speedup, relative.
  std::chrono::milliseconds max_time{3000};  // Timed sampling of one trial, all launches together.
  double confidence = 0.95;
  double min_effect = 0.01;
  int64_t max_attempts = 3;
  bool warm = false;   // One layer in a loop, labelled `warm`.
  bool zeros = false;  // Zero data instead of random, labelled.
  bool breakdown = true;
  bool prune = true;  // Trials that their ceiling makes pointless are not run.
};

struct Budget {
  std::optional<double> effort_hours;
  std::optional<std::chrono::milliseconds> wall;
  double max_error = 0;  // A lossy intervention within it ranks with the exact ones.
  int64_t rounds = 1;    // Passes over the interventions, each on top of the last one's winner.
};

struct Economics {
  std::optional<double> gpu_hours;
  double engineer_hour_in_gpu_hours = 40;
};

struct Campaign {
  int schema = 1;
  std::string name;
  std::string question;
  Model model;
  int64_t layers_kept = 0;  // 0: all; else so many MoE layers are kept, rotated and scaled.
  bool machine_auto = true;
  Machine machine;  // From the file, or detected by the workers when auto.
  Plan baseline;
  std::vector<Point> points;
  MeasureOptions measure;
  Budget budget;
  Economics economics;
  std::vector<Intervention> interventions;
  std::vector<Infeasible> infeasible;
  std::optional<Fidelity>
      fidelity;  // --fidelity; unset lets the coordinator choose full if it can.
  std::vector<std::string> overrides;  // --set path=value, as given.
  std::vector<std::string> warnings;
};

}  // namespace lastflop
