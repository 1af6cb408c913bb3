#include "spec/map_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/suggest.h"

namespace lastflop {

MapReader::MapReader(const YamlValue& value, std::string path, Diagnostics& diagnostics)
    : value_(value),
      diagnostics_(diagnostics),
      path_(std::move(path)),
      is_map_(value.kind == YamlValue::Kind::kMap) {
  if (!is_map_) {
    diagnostics.Error(value.location, path_, absl::StrCat(Describe(value), " must be a map"));
  }
}

const YamlValue* MapReader::Optional(absl::string_view key) {
  known_.emplace_back(key);
  const YamlValue* value = value_.Find(key);
  if (value != nullptr && value->kind == YamlValue::Kind::kNull) {
    diagnostics_.Error(value->location, PathOf(key), "the key has no value; write one or drop it");
    return nullptr;
  }
  return value;
}

const YamlValue* MapReader::Required(absl::string_view key) {
  if (is_map_ && value_.Find(key) == nullptr) {
    known_.emplace_back(key);
    diagnostics_.Error(value_.location, PathOf(key), "the key is missing");
    return nullptr;
  }
  return Optional(key);
}

void MapReader::Finish() {
  const std::vector<absl::string_view> known(known_.begin(), known_.end());
  for (const YamlEntry& entry : value_.entries) {
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      const std::string suggestion = DidYouMean(entry.key, known);
      diagnostics_.Error(
          entry.location, PathOf(entry.key),
          absl::StrCat("unknown key", suggestion.empty()
                                          ? absl::StrCat("; known are ", absl::StrJoin(known, ", "))
                                          : suggestion));
    }
  }
}

void MapReader::Error(absl::string_view key, absl::string_view message) {
  const YamlValue* value = value_.Find(key);
  diagnostics_.Error(value == nullptr ? value_.location : value->location, PathOf(key), message);
}

}  // namespace lastflop
