#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/machine.h"

namespace lastflop {

// A machine that one does not have, from YAML (experiments/machines/). Every number is `value` or
// `{value: ..., source: ...}`; one without a source of its own has that of the file. Values are
// taken as they are when positive, however unlikely. InvalidArgument: all errors of the file, one
// `FILE:LINE:COLUMN: path: message` a line.
absl::StatusOr<Machine> ReadMachine(absl::string_view text, const std::string& file_name);

// ReadMachine of a file. NotFound when there is none.
absl::StatusOr<Machine> ReadMachineFile(const std::string& path);

// The file of the machine called `name` in a campaign that lies in `directory`: a path (it has a
// slash or ends in .yaml) relative to `directory`, else NAME.yaml in machines/ beside the campaign,
// then in `shared_directory`. NotFound says where it was looked for and which machines there are.
absl::StatusOr<std::string> FindMachineFile(const std::string& name, const std::string& directory,
                                            const std::string& shared_directory);

}  // namespace lastflop
