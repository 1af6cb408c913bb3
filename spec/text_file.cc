#include "spec/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string Reason(int error) { return std::generic_category().message(error); }

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const int error = errno;
    const std::string message = absl::StrCat(path, ": cannot be opened: ", Reason(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
  }
  // As much memory as the file needs, and one byte over the bound to see that it is over.
  constexpr size_t kBlock = size_t{1} << 16;
  std::string text;
  size_t num_read = 0;
  do {
    text.resize(std::min(num_read + kBlock, max_bytes + 1));
    const size_t count = std::fread(text.data() + num_read, 1, text.size() - num_read, file.get());
    num_read += count;
    if (count == 0) {
      break;
    }
  } while (num_read <= max_bytes);
  text.resize(num_read);
  if (std::ferror(file.get()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot be read: ", Reason(errno)));
  }
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is larger than the ", max_bytes, " bytes that are read"));
  }
  return text;
}

}  // namespace lastflop
