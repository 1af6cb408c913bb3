#include "planner/cost/step_notes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {
namespace {

void NoteFieldsWithoutACurve(const Plan& plan, std::vector<std::string>& notes) {
  const Plan plain;
  const auto note = [&notes](bool is_set, absl::string_view field) {
    if (is_set) {
      notes.push_back(
          absl::StrCat(field, ": no measurement says what it changes; taken as nothing"));
    }
  };
  note(plan.moe.kernel != MoeKernel::kGrouped && plan.moe.kernel != MoeKernel::kFused,
       "moe.kernel");
  note(plan.moe.tile_order != plain.moe.tile_order || plan.moe.group_m != 0, "moe.tile_order");
  note(plan.moe.l2_pin.has_value(), "moe.l2_pin");
  note(plan.moe.cache_hint != CacheHint::kNone, "moe.cache_hint");
  note(!(plan.collectives.nccl == NcclTuning{}), "collectives.nccl");
  note(plan.launch.dependent, "launch.dependent");
  note(!plan.process_env.empty(), "process.env");
  note(plan.overlap == Overlap::kPrefillDecode, "overlap");
}

}  // namespace

bool HasACurve(absl::string_view path, absl::string_view value) {
  if (path == "moe.kernel") {
    return value == "grouped" || value == "fused";
  }
  if (path == "overlap") {
    return value != "prefill_decode";
  }
  for (const absl::string_view prefix :
       {"moe.tile_order", "moe.group_m", "moe.l2_pin", "moe.cache_hint", "collectives.nccl",
        "launch.dependent", "process.env"}) {
    if (absl::StartsWith(path, prefix)) {
      return false;
    }
  }
  return true;
}

std::vector<std::string> NotesOn(const Plan& plan, const Machine& machine,
                                 const MachineRates& rates, const OpCurves& curves) {
  std::vector<std::string> notes;
  if (!rates.is_curves_machine) {
    notes.push_back(absl::StrCat("curves of ", curves.device_name, " (", curves.architecture,
                                 "), scaled by bandwidth and peak: nobody measured ",
                                 machine.device_name.empty() ? machine.name : machine.device_name));
  }
  if (!(rates.bf16_flop_per_us > 0)) {
    notes.push_back("peak_bf16_tflop_per_s is unknown: products cost no more than their bytes");
  }
  if (rates.product_share > 0) {
    notes.push_back(absl::StrFormat(
        "products: %.0f%% of the measured rate of multiply-adds is taken as reached",
        100 * rates.product_share));
  }
  if (plan.overlap == Overlap::kSingleBatch || plan.overlap == Overlap::kTwoBatch) {
    notes.push_back("overlap: half of what could be hidden is taken as hidden");
  }
  if (plan.collectives.fuse_norm || plan.collectives.fuse_finalize) {
    notes.push_back("fused collectives: 30% of the taken-in op's time is taken to remain");
  }
  NoteFieldsWithoutACurve(plan, notes);
  return notes;
}

}  // namespace lastflop
