#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// A model's config.json with the place of every value, for messages that say where a mistake is.
namespace lastflop {

struct ConfigValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;    // kInteger: written without a fraction or an exponent, and fits.
  double number = 0;      // kInteger and kNumber.
  std::string text = "";  // kString.
  std::vector<ConfigValue> items = {};
  std::vector<std::pair<std::string, ConfigValue>> members = {};  // In the order of the file.
  // Where the nearest key around the value starts; from 1. The column counts bytes.
  int line = 1;
  int column = 1;

  // The member of an object, or null. A member that is null in the file is found.
  const ConfigValue* Find(absl::string_view key) const;
};

// What a value is, for messages: "a string", "null".
absl::string_view KindWord(ConfigValue::Kind kind);

// InvalidArgument, as FILE:LINE:COLUMN: path: message, for what is not JSON, for a key that stands
// twice in one object, and for values nested deeper than any config. A byte order mark is skipped.
absl::StatusOr<ConfigValue> ParseConfigJson(absl::string_view text, absl::string_view file_name);

// "FILE:LINE:COLUMN: path: message", or without the path where it is empty.
absl::Status ConfigError(absl::string_view file_name, int line, int column, absl::string_view path,
                         absl::string_view message);

}  // namespace lastflop
