#include "cli/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "report/render.h"

namespace lastflop {

absl::StatusOr<std::string> WriteOutputFile(const std::string& out, absl::string_view name,
                                            absl::string_view extension, absl::string_view text,
                                            absl::string_view id) {
  std::filesystem::path path = out;
  std::error_code error;
  if (absl::EndsWith(out, "/")) {
    std::filesystem::create_directories(path, error);
  }
  if (!error && std::filesystem::is_directory(path, error)) {
    path /= absl::StrCat(SafeFileName(name, id), ".", extension);
  }
  path = std::filesystem::weakly_canonical(path, error);  // A link stays one.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--out ", path.string(), ": is no regular file; without --out it goes to stdout"));
  }
  const std::string fresh = absl::StrCat(path.string(), ".", getpid(), ".new");
  std::ofstream file(fresh, std::ios::binary);
  file << text;
  file.close();
  error.clear();
  if (file) {
    std::filesystem::rename(fresh, path, error);
  }
  if (!file || error) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    return absl::InvalidArgumentError(absl::StrCat("--out ", path.string(), ": cannot be written",
                                                   error ? ": " : "",
                                                   error ? error.message() : ""));
  }
  return path.string();
}

absl::Status CheckNewOutputFile(const std::string& out, absl::string_view name,
                                absl::string_view extension) {
  std::filesystem::path path = out;
  std::error_code error;
  if (absl::EndsWith(out, "/") || std::filesystem::is_directory(path, error)) {
    path /= absl::StrCat(SafeFileName(name), ".", extension);
  }
  return std::filesystem::exists(path, error)
             ? absl::InvalidArgumentError(
                   absl::StrCat("--out ", path.string(), ": is there already; --force replaces it"))
             : absl::OkStatus();
}

}  // namespace lastflop
