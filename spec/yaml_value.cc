#include "spec/yaml_value.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lastflop {

const YamlValue* YamlValue::Find(absl::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) {
      return &entry.value;
    }
  }
  return nullptr;
}

YamlValue* YamlValue::Find(absl::string_view key) {
  return const_cast<YamlValue*>(static_cast<const YamlValue*>(this)->Find(key));
}

absl::string_view KindName(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "nothing";
    case YamlValue::Kind::kScalar:
      return value.is_quoted ? "quoted text" : "text";
    case YamlValue::Kind::kList:
      return "a list";
    case YamlValue::Kind::kMap:
      return "a map";
  }
  return "nothing";
}

std::string Describe(const YamlValue& value) {
  constexpr size_t kLongest = 60;
  switch (value.kind) {
    case YamlValue::Kind::kScalar: {
      const std::string text = value.text.size() > kLongest
                                   ? absl::StrCat(value.text.substr(0, kLongest), "...")
                                   : value.text;
      return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
    }
    case YamlValue::Kind::kList:
      return absl::StrCat("a list of ", value.items.size());
    default:
      return std::string(KindName(value));
  }
}

}  // namespace lastflop
