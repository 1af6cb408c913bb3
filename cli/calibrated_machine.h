#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/machine.h"

namespace lastflop {

// A machine file in the making: what `lastflop calibrate` measured, and where each number is from.
struct CalibratedMachine {
  Machine machine;
  std::map<std::string, std::string> origins;  // By key of the file, as MachineYaml takes them.
  std::vector<std::string> left_out;           // "KEY is left out: " and why it cannot be told.
};

// A machine as lastflop-worker measured it, each number with how; `when` says by what command and
// on which day.
CalibratedMachine DescribeMeasured(const Machine& machine, absl::string_view when);

// Takes latency and rate of all-reduces from the JSON of `lastflop collectives bench`: the time of
// the least size that was measured, and what the difference between it and the largest leaves for
// the bytes that a ring sends. Where that is all of the time there is a rate and no latency.
// NotFound: fewer than two sizes with a correct result, or the larger
// one not slower.
absl::Status AddAllReduces(const std::string& bench_json, absl::string_view when,
                           CalibratedMachine& calibrated);

// Peaks that nothing here measures (bandwidth, flop, link), from `declared`, a machine file of the
// same device that is called `file`. What is set stays.
void AddDeclared(const Machine& declared, absl::string_view file, CalibratedMachine& calibrated);

// "nvidia-h200-x2", "amd-epyc-7763-64-core-processor": a name for files.
std::string MachineFileName(const Machine& machine);

}  // namespace lastflop
