#include "cli/collectives_bench.h"

#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/processes.h"
#include "cli/temporary_folder.h"
#include "common/share_path.h"
#include "common/status_macros.h"

namespace lastflop {

absl::StatusOr<std::string> RunCollectivesBench(const CollectivesBench& bench) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  LASTFLOP_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  const auto arguments_of = [&](size_t rank) {
    return std::vector<std::string>{absl::StrCat(directory, "/lastflop-worker"),
                                    "--bench-collectives",
                                    folder.path() + "/gang",
                                    "--device",
                                    bench.devices[rank],
                                    "--rank",
                                    absl::StrCat(rank),
                                    "--ranks",
                                    absl::StrCat(bench.devices.size()),
                                    "--bytes",
                                    absl::StrJoin(bench.bytes, ","),
                                    "--algorithms",
                                    absl::StrJoin(bench.algorithms, ","),
                                    "--operations",
                                    absl::StrJoin(bench.operations, ","),
                                    "--parent",
                                    absl::StrCat(getpid())};
  };
  std::vector<std::unique_ptr<ChildProgram>> others;
  for (size_t rank = 1; rank < bench.devices.size(); ++rank) {
    LASTFLOP_ASSIGN_OR_RETURN(auto child, ChildProgram::Start(arguments_of(rank), ""));
    others.push_back(std::move(child));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, OutputOf(arguments_of(0)));
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.contains("rows")) {
    return absl::InternalError("lastflop-worker answered no rows");
  }
  return text;
}

}  // namespace lastflop
