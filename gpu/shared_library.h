#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lastflop {

// A library of the GPU host that lastflop does not ship: the driver's NVML, cuBLASLt, NCCL, CUPTI.
// Loaded once and never unloaded.
class SharedLibrary {
 public:
  // Opens the first of `names` ("libnccl.so.2") that is found: by LASTFLOP_<ENV>_LIBRARY (a path),
  // by the loader's own search, then in the folders where toolkits and Python wheels put it.
  // NotFound names what was tried.
  static absl::StatusOr<SharedLibrary> Open(const std::string& env,
                                            const std::vector<std::string>& names);

  // NotFound with the library and the symbol.
  absl::StatusOr<void*> Symbol(const char* name) const;
  template <typename Function>
  absl::Status Load(const char* name, Function*& function) const {
    absl::StatusOr<void*> symbol = Symbol(name);
    if (!symbol.ok()) {
      return symbol.status();
    }
    function = reinterpret_cast<Function*>(*symbol);
    return absl::OkStatus();
  }
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

}  // namespace lastflop
