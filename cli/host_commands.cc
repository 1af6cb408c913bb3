// kernels and doctor: what this host has, asked of lastflop-worker, which alone sees kernels and
// devices.

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/processes.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/exit_codes.h"
#include "common/share_path.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

absl::StatusOr<nlohmann::json> AskWorker(const std::string& what) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::string text,
      OutputOf({absl::StrCat(directory, "/lastflop-worker"), "--print", what}));
  nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return absl::InternalError("lastflop-worker answered no JSON");
  }
  return document;
}

// One row an entry of `list`, its `names` as columns; lists of words are joined.
Rows RowsOf(const nlohmann::json& list, const std::vector<std::string>& names) {
  Rows rows;
  rows.names = names;
  rows.is_number.assign(names.size(), false);
  for (const nlohmann::json& entry : list) {
    std::vector<std::string> cells;
    for (const std::string& name : names) {
      cells.push_back(entry.at(name).get<std::string>());
    }
    rows.cells.push_back(std::move(cells));
  }
  return rows;
}

int PrintList(const std::string& what, const std::string& key, const std::string& format,
              const std::vector<std::string>& names, Io& io) {
  const absl::StatusOr<nlohmann::json> document = AskWorker(what);
  if (!document.ok()) {
    return ExitCodeFor(document.status(), io.err);
  }
  if (format == "json") {
    io.out << document->dump(2) << "\n";
  } else {
    WriteRows(RowsOf(document->at(key), names), format, io.out);
  }
  return kExitFinished;
}

}  // namespace

int KernelsCommand(const HostFlags& flags, Io& io) {
  return PrintList("kernels", "kernels", flags.format,
                   {"name", "backends", "ops", "formats", "config", "summary"}, io);
}

int DoctorCommand(const HostFlags& flags, Io& io) {
  return PrintList("doctor", "findings", flags.format, {"severity", "subject", "found", "spoils"},
                   io);
}

}  // namespace lastflop
