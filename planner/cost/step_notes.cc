#include "planner/cost/step_notes.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "step/layout.h"
#include "step/padded_experts.h"

namespace lastflop {
namespace {

// The field of the ones that no curve prices which `path` is of; "" where the value is priced.
absl::string_view UnpricedField(absl::string_view path, absl::string_view value) {
  if (path == "moe.kernel") {
    return value == "grouped" || value == "fused" ? "" : path;
  }
  if (path == "overlap") {
    return value == "prefill_decode" ? path : "";
  }
  for (const absl::string_view field :
       {"moe.tile_order", "moe.group_m", "moe.l2_pin", "moe.cache_hint", "collectives.nccl",
        "launch.dependent", "process.env"}) {
    if (absl::StartsWith(path, field)) {
      return field;
    }
  }
  return "";
}

// Expert products were measured in bf16 and int4_g32 (planner/cost/op_curves.cc).
void NoteBorrowedFormat(const WeightStorage& storage, std::vector<std::string>& notes) {
  if (storage.format != WeightFormat::kBf16 && storage.format != WeightFormat::kInt4G32) {
    notes.push_back(absl::StrCat("experts in ", ToWord(storage.format), ": products priced by the ",
                                 BitsPerWeight(storage) < 8 ? "int4_g32" : "bf16",
                                 " curve at their own bytes; nobody measured theirs"));
  }
}

// What is priced and could not be run: a preview may be of hardware that nobody has.
void NoteKernelThatIsNotBuilt(const Model& model, const Plan& plan, const Machine& machine,
                              std::vector<std::string>& notes) {
  const WeightFormat format = ExpertStorage(model, plan).format;
  const bool is_built =
      format == WeightFormat::kInt4G32 && absl::StartsWith(machine.architecture, "sm_90");
  if (plan.moe.kernel == MoeKernel::kFused && machine.backend == "cuda" && !is_built) {
    notes.push_back(absl::StrCat(
        "moe.kernel=fused: priced as if it were built; the CUDA backend has it for int4_g32 "
        "experts on sm_90, not for ",
        ToWord(format), " on ", machine.architecture.empty() ? machine.name : machine.architecture,
        ", where a trial is unsupported"));
  }
}

void NoteFieldsWithoutACurve(const Plan& plan, std::vector<std::string>& notes) {
  std::set<absl::string_view> fields;
  const std::vector<PlanDifference> set = DiffPlans(Plan(), plan);
  for (const PlanDifference& one : set) {
    // Its padded work is priced; PaddingNoteOn says so.
    if (one.path != "moe.kernel" || plan.moe.kernel != MoeKernel::kCublaslt) {
      fields.insert(UnpricedField(one.path, one.to));
    }
  }
  fields.erase("");
  for (const absl::string_view field : fields) {
    notes.push_back(absl::StrCat(field, ": no measurement says what it changes; taken as nothing"));
  }
}

}  // namespace

std::string PaddingNoteOn(const Model& model, const Step& step) {
  return absl::StrCat("moe.kernel: ", PaddingNote(model, step),
                      "; priced as cuBLASLt's dense products of all that; nobody measured its "
                      "batches of experts");
}

bool HasACurve(absl::string_view path, absl::string_view value) {
  return UnpricedField(path, value).empty();
}

std::string BorrowedMachineNote(const Machine& machine, const MachineRates& rates,
                                const OpCurves& curves) {
  if (rates.is_curves_machine) {
    return "";
  }
  return absl::StrCat("curves of ", curves.device_name, " (", curves.architecture,
                      "), scaled by bandwidth and peak: nobody measured ",
                      machine.device_name.empty() ? machine.name : machine.device_name);
}

std::vector<std::string> NotesOn(const Model& model, const Plan& plan, const Machine& machine,
                                 const MachineRates& rates, const OpCurves& curves) {
  std::vector<std::string> notes;
  if (std::string note = BorrowedMachineNote(machine, rates, curves); !note.empty()) {
    notes.push_back(std::move(note));
  }
  NoteBorrowedFormat(ExpertStorage(model, plan), notes);
  NoteKernelThatIsNotBuilt(model, plan, machine, notes);
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
  const bool has_peer_reduce = plan.collectives.all_reduce == AllReduceAlgorithm::kOneShot ||
                               plan.collectives.all_reduce == AllReduceAlgorithm::kTwoShot;
  if (machine.link == "pcie" && plan.num_ranks() > 1 && has_peer_reduce) {
    notes.push_back(absl::StrCat("collectives.all_reduce: nobody measured ",
                                 ToWord(plan.collectives.all_reduce),
                                 " over PCIe; its latency is taken to be no lower than NCCL's"));
  }
  NoteFieldsWithoutACurve(plan, notes);
  return notes;
}

}  // namespace lastflop
