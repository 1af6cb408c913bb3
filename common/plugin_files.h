#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lastflop {

// A file that `moe.kernel: plugin:NAME` stands for on a worker.
struct PluginFile {
  std::string path;         // Absolute.
  std::string fingerprint;  // Of its content: 16 hex digits.
};

// What a worker offers, by NAME.
using PluginFiles = std::map<std::string, PluginFile>;

// 16 hex digits over the file's content: FNV-1a, 64 bit. NotFound: it cannot be read.
absl::StatusOr<std::string> FingerprintOfFile(const std::string& path);

// Reads --plugin flags, NAME=FILE each; relative files are this process' working directory's.
// InvalidArgument: no such form, a name that no plan can have, a name that stands twice, a file
// that cannot be read.
absl::StatusOr<PluginFiles> ParsePluginFlags(const std::vector<std::string>& flags);

}  // namespace lastflop
