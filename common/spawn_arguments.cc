#include "common/spawn_arguments.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace lastflop {

std::vector<char*> NullTerminated(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) {
      merged.push_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    merged.push_back(absl::StrCat(name, "=", value));
  }
  return merged;
}

}  // namespace lastflop
