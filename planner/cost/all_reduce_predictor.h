#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/measured_rows.h"
#include "planner/cost/systems.h"

namespace lastflop {

// Predicts all-reduces from calibration rows of the same algorithm: straight in log(us) over
// log(bytes) between sizes, and straight in sqrt(us) over log2(ranks) between rank counts, which is
// between the latency of a ring (linear in ranks) and that of a tree. Outside of the measured ranks
// the nearest count is scaled by the bytes a ring sends and a latency a hop. A system without rows
// borrows the nearest one's, latency and transfer scaled apart. Const after Create.
class AllReducePredictor {
 public:
  // InvalidArgument: a row without a positive latency, ranks under 2, bytes under 1.
  // NotFound: an unknown system.
  static absl::StatusOr<AllReducePredictor> Create(const std::vector<AllReduceRow>& calibration);

  absl::StatusOr<RowPrediction> Predict(const AllReduceRow& row) const;

 private:
  using Sizes = std::map<double, double>;  // us by bytes, of one rank count.
  using Repeats = std::map<std::pair<int64_t, double>, std::vector<double>>;  // Log us.
  struct Group {
    std::string kernel;
    const SystemSpec* system = nullptr;
    std::map<int64_t, Sizes> ranks;
    Repeats repeats;  // What `ranks` is the mean of.
  };

  std::vector<Group> groups_;
};

}  // namespace lastflop
