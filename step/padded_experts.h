#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/model.h"
#include "common/plan.h"
#include "step/op.h"

// moe.kernel: cublaslt. The products of all local experts are one batch of equally large ones: how
// many rows that is, and what it costs.
namespace lastflop {

// Rows that every expert gets. Routing is on the device, and a batch's shape is fixed when it is
// captured: it is the most that an expert can have. A token chooses an expert once at most.
int64_t PaddedRows(int64_t num_tokens);

// InvalidArgument: a kernel cublaslt without bf16 experts in rows.
absl::Status CheckPaddedExperts(const Model& model, const Plan& plan);

// What a step's padding costs, one sentence; "" where nothing is padded.
std::string PaddingNote(const Model& model, const Step& step);

}  // namespace lastflop
