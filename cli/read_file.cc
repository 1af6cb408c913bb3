#include "cli/read_file.h"

#include "spec/text_file.h"

namespace lastflop {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  constexpr size_t kMostBytes = size_t{256} << 20;  // An export with every sample has a few MiB.
  return ReadTextFile(path, kMostBytes);
}

}  // namespace lastflop
