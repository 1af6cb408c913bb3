#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/plan.h"
#include "planner/cost/op_curves.h"
#include "step/op.h"

namespace lastflop {

// What a prediction of `plan` on `machine` takes for granted, one sentence each: borrowed curves,
// unknown peaks, and plan fields that no curve knows and that are taken to change nothing.
std::vector<std::string> NotesOn(const Model& model, const Plan& plan, const Machine& machine,
                                 const MachineRates& rates, const OpCurves& curves);

// Of a step whose experts' rows are padded: by how much, and how that is priced.
std::string PaddingNoteOn(const Model& model, const Step& step);

// That `machine` is not the one of the curves; "" where it is.
std::string BorrowedMachineNote(const Machine& machine, const MachineRates& rates,
                                const OpCurves& curves);

// Whether the model prices a field at this value at all (`value` as common/plan_fields.cc writes
// it): kernels nobody has measured, tile orders, pins, tuning of others' libraries it does not.
bool HasACurve(absl::string_view path, absl::string_view value);

}  // namespace lastflop
