#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "common/words.h"
#include "planner/cost/all_reduce_predictor.h"
#include "planner/cost/moe_predictor.h"
#include "planner/cost/op_curves.h"
#include "planner/cost/rows_csv.h"

namespace lastflop {

// A time that outside measurements give for a part of a step.
struct ImportedTime {
  TimeEstimate time;
  const SystemSpec* system = nullptr;  // Whose rows it rests on.
  std::string kernel;                  // Theirs.
  std::string origin;                  // As RowPrediction::origin.
  std::string sources;                 // The tags of the rows, joined: "bench of 2026-08".
};

// One rank's MoE layer, as rows of measurements describe one.
struct ImportedMoeCall {
  WeightFormat weights = WeightFormat::kBf16;
  ActivationFormat activations = ActivationFormat::kBf16;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;  // Whole.
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t slices = 1;         // Ranks that an expert is sliced over.
  int64_t expert_groups = 1;  // Ranks that the experts are split over.
  std::string distribution;   // As MoeLayerRow has it.
  int64_t num_tokens = 0;     // Of the whole group.
};

// Rows of `lastflop import` as the prediction of a step asks for them
// (planner/cost/predict_step.h). Of kernels that several frameworks have, the fastest stands for
// what one would deploy. Remembers answers: fitting and asking take milliseconds. One thread at a
// time.
class ImportedRows {
 public:
  // Errors as of the predictors: a row without a latency, an unknown system.
  static absl::StatusOr<ImportedRows> Create(const MeasuredRows& rows);

  // Weights are cold, as in a step. Absent: the machine is no system that rows can name, the rows
  // have no kernel of these formats, or the call is nothing that a row can say.
  std::optional<ImportedTime> MoeLayer(const Machine& machine, const ImportedMoeCall& call);

  // nccl by NCCL's rows; the others by those of custom kernels in a graph. Absent without any.
  std::optional<ImportedTime> AllReduce(const Machine& machine, AllReduceAlgorithm algorithm,
                                        int64_t ranks, double bytes);

 private:
  struct Kernel {
    std::string name;
    std::string dtype;  // "" of all-reduces.
    const SystemSpec* system = nullptr;
    std::string sources;
    bool operator==(const Kernel& other) const {
      return name == other.name && dtype == other.dtype && system == other.system;
    }
  };

  ImportedRows(MoePredictor moe, AllReducePredictor all_reduce)
      : moe_(std::move(moe)), all_reduce_(std::move(all_reduce)) {}
  static void AddKernel(const Kernel& kernel, const std::string& source,
                        std::vector<Kernel>& kernels);

  MoePredictor moe_;
  AllReducePredictor all_reduce_;
  std::vector<Kernel> moe_kernels_;
  std::vector<Kernel> all_reduce_kernels_;
  std::map<std::string, std::optional<ImportedTime>> known_;
};

}  // namespace lastflop
