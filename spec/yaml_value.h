#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// A YAML document as lastflop reads it: every scalar is its text, so that a number means what this
// project says it means and not what a YAML library makes of it.
namespace lastflop {

// Where something was written, for messages. Lines and columns count from 1, columns in bytes.
struct Location {
  int line = 1;
  int column = 1;
  int override_index = -1;  // >= 0: in that --set, not in the file.
};

struct YamlEntry;

// One value. Copies are deep.
struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Location location;
  std::string text;        // kScalar
  bool is_quoted = false;  // kScalar: quoted or a block, so it is text whatever it looks like.
  std::vector<YamlValue> items;    // kList
  std::vector<YamlEntry> entries;  // kMap, in file order, each key once.

  // The value of `key`, or nullptr.
  const YamlValue* Find(absl::string_view key) const;
  YamlValue* Find(absl::string_view key);
};

struct YamlEntry {
  std::string key;
  Location location;
  YamlValue value;
};

// "a map", "a list", "text", "nothing": for messages.
absl::string_view KindName(const YamlValue& value);

// What stands there, short enough for a message: `"8.0"`, `a list of 3`, `nothing`.
std::string Describe(const YamlValue& value);

}  // namespace lastflop
