#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "spec/config_json.h"

namespace lastflop {

// Reads the fields of one object of a config. The first mistake is kept and every later read
// answers its fallback, so a reader lists its fields and asks for status() once at its end. A field
// that is null counts as absent, as in the library that writes these files.
class ConfigFields {
 public:
  // `path` is the object's own, "" for the root. Both arguments outlive this; lines about values
  // that were not in the file go to `assumed`.
  ConfigFields(const ConfigValue& object, absl::string_view path, absl::string_view file_name,
               std::vector<std::string>* assumed);

  bool Has(absl::string_view key) const { return FindValue(key) != nullptr; }
  // The first of `keys` that the object has; the first of all where it has none.
  absl::string_view FirstOf(const std::vector<absl::string_view>& keys) const;
  const ConfigValue* FindValue(absl::string_view key) const;
  const ConfigValue& object() const { return object_; }
  // Whether `key` stands there as null: none of it, for the few keys of which there may be none.
  bool IsNull(absl::string_view key) const;

  // Whether a reader has asked for `key`, by any of the functions here.
  bool WasAsked(absl::string_view key) const { return asked_.contains(key); }

  // Required, in [low, high]. A whole number may be written as 2048.0 here and below.
  int64_t Size(absl::string_view key, int64_t low, int64_t high);
  // `fallback` where the key is absent: what the family always does.
  int64_t SizeOr(absl::string_view key, int64_t fallback, int64_t low, int64_t high);
  bool BoolOr(absl::string_view key, bool fallback);
  std::string StringOr(absl::string_view key, absl::string_view fallback);
  // > 0 and finite.
  double NumberOr(absl::string_view key, double fallback);
  std::vector<std::string> StringList(absl::string_view key);
  std::vector<int64_t> SizeList(absl::string_view key, int64_t low, int64_t high);

  // As the ones without Assume, and an absent key is reported as `KEY: VALUE, WHY`.
  int64_t AssumeSize(absl::string_view key, int64_t fallback, absl::string_view why, int64_t low,
                     int64_t high);
  double AssumeNumber(absl::string_view key, double fallback, absl::string_view why);
  bool AssumeBool(absl::string_view key, bool fallback, absl::string_view why);
  std::string AssumeString(absl::string_view key, absl::string_view fallback,
                           absl::string_view why);

  // The fields of an object inside this one, with a status of its own.
  ConfigFields Inside(absl::string_view key, const ConfigValue& object) const;

  // An error at the place of `key`, or of the object where the key is absent.
  void Fail(absl::string_view key, absl::string_view message);
  absl::Status ErrorAt(absl::string_view key, absl::string_view message) const;
  void Adopt(const absl::Status& status);
  const absl::Status& status() const { return status_; }

  // The value as the file has it, for messages; containers by their kind only.
  static std::string ValueText(const ConfigValue& value);

  // "text_config.num_experts"
  std::string PathTo(absl::string_view key) const;

 private:
  // The value when it is of `kind`; else null, with an error unless it is absent.
  const ConfigValue* Typed(absl::string_view key, ConfigValue::Kind kind);
  void Assume(absl::string_view key, absl::string_view value, absl::string_view why);

  const ConfigValue& object_;  // Outlives this.
  std::string path_;
  std::string file_name_;
  std::vector<std::string>* assumed_;  // Outlives this.
  mutable std::set<std::string, std::less<>> asked_;
  absl::Status status_;
};

}  // namespace lastflop
