#include <string>

#include "cli/commands.h"
#include "cli/read_results.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "spec/model_json.h"
#include "spec/model_reader.h"

namespace lastflop {

int ModelCommand(const ModelFlags& flags, Io& io) {
  const absl::StatusOr<Model> model = ReadModelFile(flags.file);
  if (!model.ok()) {
    return ExitCodeFor(model.status(), io.err);
  }
  io.out << (flags.format == "json" ? ModelToJsonDocument(*model)
                                    : PlainLines(ModelToTable(*model)))
         << std::flush;
  return kExitFinished;
}

}  // namespace lastflop
