#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/plugin_files.h"
#include "gtest/gtest.h"

namespace lastflop {

// A plugin of the build (plugin/, tests/plugin/) by its file's name, ".so" left out; in another
// folder where the environment has LASTFLOP_TEST_PLUGINS.
inline std::string PluginPath(const std::string& name) {
  const char* const folder = std::getenv("LASTFLOP_TEST_PLUGINS");
  return absl::StrCat(folder != nullptr ? folder : LASTFLOP_TEST_PLUGINS, "/", name,
                      absl::StrContains(name, '.') ? "" : ".so");
}

// The plugins of the build under their own names, without what their files' names end in.
inline PluginFiles FilesOf(const std::vector<std::string>& names) {
  std::vector<std::string> flags;
  for (const std::string& name : names) {
    flags.push_back(name.substr(0, name.find('.')) + "=" + PluginPath(name));
  }
  const absl::StatusOr<PluginFiles> files = ParsePluginFlags(flags);
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? *files : PluginFiles{};
}

}  // namespace lastflop
