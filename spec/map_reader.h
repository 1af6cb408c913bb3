#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "spec/diagnostics.h"
#include "spec/yaml_value.h"

namespace lastflop {

// Reads the keys of one YAML map and knows afterwards which ones nobody asked for.
//
//   MapReader reader(value, "measure", diagnostics);
//   reader.Optional("launches", options.launches, IntegerIn(1));
//   reader.Finish();
class MapReader {
 public:
  // All of them outlive the reader. A value that is no map is an error, and then every key is
  // absent without a further one.
  MapReader(const YamlValue& value, std::string path, Diagnostics& diagnostics);

  // The value of a key that may be absent (nullptr). A key without a value is an error.
  const YamlValue* Optional(absl::string_view key);
  // The value of a key that must be there; an error and nullptr when it is not.
  const YamlValue* Required(absl::string_view key);

  // The same, parsed; `out` keeps its value when the key is absent or wrong. True when it was set.
  template <typename T, typename Parse>
  bool Optional(absl::string_view key, T& out, const Parse& parse) {
    return Store(key, Optional(key), out, parse);
  }
  template <typename T, typename Parse>
  bool Required(absl::string_view key, T& out, const Parse& parse) {
    return Store(key, Required(key), out, parse);
  }

  // Reports every key that was not asked for, with what it may have been meant to be.
  void Finish();

  bool is_map() const { return is_map_; }
  const YamlValue& value() const { return value_; }
  std::string PathOf(absl::string_view key) const { return JoinPath(path_, key); }
  // An error at the key's value, or at the map when it is absent.
  void Error(absl::string_view key, absl::string_view message);

 private:
  template <typename T, typename Parse>
  bool Store(absl::string_view key, const YamlValue* value, T& out, const Parse& parse) {
    if (value == nullptr) {
      return false;
    }
    auto parsed = parse(*value);
    if (!parsed.ok()) {
      diagnostics_.Error(value->location, PathOf(key), parsed.status().message());
      return false;
    }
    out = *std::move(parsed);
    return true;
  }

  const YamlValue& value_;    // Outlives this.
  Diagnostics& diagnostics_;  // Outlives this.
  const std::string path_;
  const bool is_map_;
  std::vector<std::string> known_;
};

}  // namespace lastflop
