#include "common/share_path.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {

absl::StatusOr<std::string> BinaryDirectory() {
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("finding the running binary: /proc/self/exe: ", error.message()));
  }
  return binary.parent_path().string();
}

absl::StatusOr<std::string> SharePath(absl::string_view name) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string binaries, BinaryDirectory());
  const std::filesystem::path path =
      std::filesystem::path(binaries).parent_path() / "share/lastflop" / std::string(name);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("finding a file of lastflop's own: ", path.string(), " is not there"));
  }
  return path.string();
}

}  // namespace lastflop
