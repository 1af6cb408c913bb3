// kernels bench: reads the model, and lets lastflop-worker time its experts.

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/processes.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "cli/temporary_folder.h"
#include "common/exit_codes.h"
#include "common/kernel_bench.h"
#include "common/share_path.h"
#include "common/status_macros.h"
#include "spec/model_reader.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

absl::StatusOr<KernelBenchRequest> RequestOf(const KernelBenchFlags& flags) {
  KernelBenchRequest request;
  LASTFLOP_ASSIGN_OR_RETURN(request.model, ReadModelFile(flags.model_file));
  request.tensor = flags.tensor;
  request.expert = flags.expert;
  request.most_loaded = flags.rank == "max";
  if (!flags.weights.empty()) {
    request.weights = FromWord<WeightFormat>(flags.weights);
  }
  request.batches = flags.batches;
  request.routing.distribution = *FromWord<Distribution>(flags.routing);
  request.routing.exponent = flags.exponent;
  request.routing.seed = flags.seed;
  request.samples = flags.samples;
  request.device = flags.device;
  // Here, where the answer is a usage error with its arithmetic.
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(request.model, PlanOf(request)));
  return request;
}

absl::StatusOr<std::string> AnswerOfWorker(const KernelBenchRequest& request) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  const std::string file = absl::StrCat(folder.path(), "/request.json");
  std::ofstream out(file);
  out << ToJson(request);
  out.close();
  if (!out) {
    return absl::InternalError(absl::StrCat("cannot write ", file));
  }
  return OutputOf({absl::StrCat(directory, "/lastflop-worker"), "--bench", file});
}

std::string CellOf(const std::optional<double>& value, const char* format) {
  return value.has_value() ? absl::StrFormat(*absl::ParsedFormat<'f'>::New(format), *value) : "";
}

Rows RowsOfBench(const KernelBenchResult& result) {
  Rows rows;
  rows.names = {"kernel",     "batch", "us",    "unique_experts", "floor_us",
                "read_share", "noise", "error", "config",         "reason"};
  rows.is_number = {false, true, true, true, true, true, true, true, false, false};
  for (const KernelBenchRow& row : result.rows) {
    rows.cells.push_back({row.kernel, absl::StrCat(row.batch), CellOf(row.us, "%.2f"),
                          CellOf(row.unique_experts, "%.1f"), CellOf(row.floor_us, "%.2f"),
                          CellOf(row.read_share, "%.3f"), CellOf(row.noise, "%.4f"),
                          CellOf(row.error, "%.6f"), row.config, row.reason});
  }
  return rows;
}

}  // namespace

int KernelBenchCommand(const KernelBenchFlags& flags, Io& io) {
  const absl::StatusOr<KernelBenchRequest> request = RequestOf(flags);
  if (!request.ok()) {
    return ExitCodeFor(request.status(), io.err);
  }
  const absl::StatusOr<std::string> text = AnswerOfWorker(*request);
  if (!text.ok()) {
    return ExitCodeFor(text.status(), io.err);
  }
  const absl::StatusOr<KernelBenchResult> result = KernelBenchResultFromJson(*text);
  if (!result.ok()) {
    return ExitCodeFor(result.status(), io.err);
  }
  if (flags.format == "json") {
    io.out << *text << std::flush;
  } else {
    WriteRows(RowsOfBench(*result), flags.format, io.out);
  }
  return kExitFinished;
}

}  // namespace lastflop
