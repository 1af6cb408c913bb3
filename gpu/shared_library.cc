#include "gpu/shared_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lastflop {
namespace {

// Toolkits and wheels of CUDA 13 and 12, system-wide and in virtual environments.
constexpr const char* kFolders[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    ".venv/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
};

// The newest of the files that match.
std::string NewestMatch(const std::string& pattern) {
  glob_t found{};
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0) {
    path = found.gl_pathv[found.gl_pathc - 1];
  }
  globfree(&found);
  return path;
}

std::string Folders() {
  const char* environment = std::getenv("VIRTUAL_ENV");
  return environment == nullptr
             ? ""
             : absl::StrCat(environment, "/lib/python3*/site-packages/nvidia/*/lib");
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& env,
                                                  const std::vector<std::string>& names) {
  const std::string variable = absl::StrCat("LASTFLOP_", env, "_LIBRARY");
  if (const char* path = std::getenv(variable.c_str()); path != nullptr && *path != '\0') {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return absl::NotFoundError(absl::StrCat(variable, "=", path, ": ", dlerror()));
    }
    return SharedLibrary(handle, path);
  }
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return SharedLibrary(handle, name);
    }
  }
  std::vector<std::string> folders = {Folders()};
  folders.insert(folders.end(), std::begin(kFolders), std::end(kFolders));
  for (const std::string& folder : folders) {
    for (const std::string& name : names) {
      const std::string path = folder.empty() ? "" : NewestMatch(absl::StrCat(folder, "/", name));
      if (void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
          handle != nullptr) {
        return SharedLibrary(handle, path);
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("no ", absl::StrJoin(names, " or "), " on this host; ",
                                          variable, "=PATH names it"));
}

absl::StatusOr<void*> SharedLibrary::Symbol(const char* name) const {
  void* symbol = dlsym(handle_, name);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat(path_, " has no ", name));
  }
  return symbol;
}

}  // namespace lastflop
