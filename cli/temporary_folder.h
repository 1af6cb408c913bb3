#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// A new folder of this user alone under the temporary folder; removed with its files. What killed
// processes of this user left there is removed when the next one is made: such folders, and the
// sockets that gangs meet at (lastflop-*.sock).
class TemporaryFolder {
 public:
  // Short paths: a Unix socket's has at most 107 bytes.
  static absl::StatusOr<TemporaryFolder> Create(const std::string& parent = "/tmp");
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  struct CloseFile {
    void operator()(const int* descriptor) const;
  };
  TemporaryFolder(std::string path, int owner);

  std::string path_;
  std::unique_ptr<int, CloseFile> owner_;  // Locked for as long as the folder is in use.
};

}  // namespace lastflop
