#include "common/plugin_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/hash.h"
#include "common/plan.h"
#include "common/status_macros.h"

namespace lastflop {

absl::StatusOr<std::string> FingerprintOfFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  std::ifstream in(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in || in.bad()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return absl::StrFormat("%016x", StableHash(content));
}

absl::StatusOr<PluginFiles> ParsePluginFlags(const std::vector<std::string>& flags) {
  PluginFiles files;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    if (equals == std::string::npos || equals + 1 == flag.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--plugin ", flag, ": NAME=FILE is wanted"));
    }
    const std::string name = flag.substr(0, equals);
    Plan plan;
    if (const absl::Status named = SetPlanField("moe.kernel", absl::StrCat("plugin:", name), plan);
        !named.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--plugin ", flag, ": ", named.message()));
    }
    std::error_code error;
    PluginFile file{.path = std::filesystem::absolute(flag.substr(equals + 1), error).string()};
    absl::StatusOr<std::string> fingerprint = FingerprintOfFile(file.path);
    if (!fingerprint.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--plugin ", flag, ": ", fingerprint.status().message()));
    }
    file.fingerprint = *std::move(fingerprint);
    if (!files.emplace(name, std::move(file)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--plugin ", flag, ": ", name, " stands for a file already"));
    }
  }
  return files;
}

}  // namespace lastflop
