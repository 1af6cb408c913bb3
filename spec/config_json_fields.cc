#include "spec/config_json_fields.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/numbers.h"

namespace lastflop {
namespace {

std::string RangeText(int64_t low, int64_t high) {
  return absl::StrCat("a whole number from ", low, " to ", high);
}

// The whole number in [low, high] that `value` is, also where it is written with a point.
std::optional<int64_t> WholeIn(const ConfigValue& value, int64_t low, int64_t high) {
  constexpr double kMostExact = 9007199254740992;  // 2^53: beyond it not every number is there.
  int64_t whole = value.integer;
  if (value.kind == ConfigValue::Kind::kNumber) {
    if (!(std::abs(value.number) <= kMostExact) || std::trunc(value.number) != value.number) {
      return std::nullopt;
    }
    whole = static_cast<int64_t>(value.number);
  } else if (value.kind != ConfigValue::Kind::kInteger) {
    return std::nullopt;
  }
  return whole >= low && whole <= high ? std::optional(whole) : std::nullopt;
}

}  // namespace

std::string ConfigFields::ValueText(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigValue::Kind::kBool:
      return value.boolean ? "true" : "false";
    case ConfigValue::Kind::kInteger:
      return absl::StrCat(value.integer);
    case ConfigValue::Kind::kNumber:
      return NumberText(value.number);
    case ConfigValue::Kind::kString:
      return absl::StrCat("\"", value.text, "\"");
    default:
      return std::string(KindWord(value.kind));
  }
}

ConfigFields::ConfigFields(const ConfigValue& object, absl::string_view path,
                           absl::string_view file_name, std::vector<std::string>* assumed)
    : object_(object), path_(path), file_name_(file_name), assumed_(assumed) {}

absl::string_view ConfigFields::FirstOf(const std::vector<absl::string_view>& keys) const {
  for (const absl::string_view key : keys) {
    if (Has(key)) {
      return key;
    }
  }
  return keys.front();
}

const ConfigValue* ConfigFields::FindValue(absl::string_view key) const {
  asked_.emplace(key);
  const ConfigValue* const value = object_.Find(key);
  return value != nullptr && value->kind != ConfigValue::Kind::kNull ? value : nullptr;
}

bool ConfigFields::IsNull(absl::string_view key) const {
  const ConfigValue* const value = object_.Find(key);
  return value != nullptr && value->kind == ConfigValue::Kind::kNull;
}

int64_t ConfigFields::Size(absl::string_view key, int64_t low, int64_t high) {
  if (!Has(key)) {
    Fail(key, absl::StrCat("is missing: ", RangeText(low, high)));
    return low;
  }
  return SizeOr(key, low, low, high);
}

int64_t ConfigFields::SizeOr(absl::string_view key, int64_t fallback, int64_t low, int64_t high) {
  const ConfigValue* const value = FindValue(key);
  if (value == nullptr) {
    return fallback;
  }
  const std::optional<int64_t> whole = WholeIn(*value, low, high);
  if (!whole.has_value()) {
    Fail(key, absl::StrCat(ValueText(*value), ": must be ", RangeText(low, high)));
  }
  return whole.value_or(fallback);
}

bool ConfigFields::BoolOr(absl::string_view key, bool fallback) {
  const ConfigValue* const value = Typed(key, ConfigValue::Kind::kBool);
  return value != nullptr ? value->boolean : fallback;
}

std::string ConfigFields::StringOr(absl::string_view key, absl::string_view fallback) {
  const ConfigValue* const value = Typed(key, ConfigValue::Kind::kString);
  return value != nullptr ? value->text : std::string(fallback);
}

double ConfigFields::NumberOr(absl::string_view key, double fallback) {
  const ConfigValue* const value = FindValue(key);
  if (value == nullptr) {
    return fallback;
  }
  const bool is_number =
      value->kind == ConfigValue::Kind::kInteger || value->kind == ConfigValue::Kind::kNumber;
  if (!is_number || !std::isfinite(value->number) || value->number <= 0) {
    Fail(key, absl::StrCat(ValueText(*value), ": must be a number greater than 0"));
    return fallback;
  }
  return value->number;
}

std::vector<std::string> ConfigFields::StringList(absl::string_view key) {
  std::vector<std::string> texts;
  if (const ConfigValue* const list = Typed(key, ConfigValue::Kind::kArray)) {
    for (const ConfigValue& item : list->items) {
      if (item.kind != ConfigValue::Kind::kString) {
        Fail(key, absl::StrCat("has ", ValueText(item), ": must be a list of strings"));
        break;
      }
      texts.push_back(item.text);
    }
  }
  return texts;
}

std::vector<int64_t> ConfigFields::SizeList(absl::string_view key, int64_t low, int64_t high) {
  std::vector<int64_t> sizes;
  if (const ConfigValue* const list = Typed(key, ConfigValue::Kind::kArray)) {
    for (const ConfigValue& item : list->items) {
      const std::optional<int64_t> whole = WholeIn(item, low, high);
      if (!whole.has_value()) {
        Fail(key, absl::StrCat("has ", ValueText(item), ": each must be ", RangeText(low, high)));
        break;
      }
      sizes.push_back(*whole);
    }
  }
  return sizes;
}

int64_t ConfigFields::AssumeSize(absl::string_view key, int64_t fallback, absl::string_view why,
                                 int64_t low, int64_t high) {
  if (!Has(key)) {
    Assume(key, absl::StrCat(fallback), why);
  }
  return SizeOr(key, fallback, low, high);
}

double ConfigFields::AssumeNumber(absl::string_view key, double fallback, absl::string_view why) {
  if (!Has(key)) {
    Assume(key, NumberText(fallback), why);
  }
  return NumberOr(key, fallback);
}

bool ConfigFields::AssumeBool(absl::string_view key, bool fallback, absl::string_view why) {
  if (!Has(key)) {
    Assume(key, fallback ? "true" : "false", why);
  }
  return BoolOr(key, fallback);
}

std::string ConfigFields::AssumeString(absl::string_view key, absl::string_view fallback,
                                       absl::string_view why) {
  if (!Has(key)) {
    Assume(key, fallback, why);
  }
  return StringOr(key, fallback);
}

ConfigFields ConfigFields::Inside(absl::string_view key, const ConfigValue& object) const {
  return ConfigFields(object, PathTo(key), file_name_, assumed_);
}

void ConfigFields::Fail(absl::string_view key, absl::string_view message) {
  Adopt(ErrorAt(key, message));
}

absl::Status ConfigFields::ErrorAt(absl::string_view key, absl::string_view message) const {
  const ConfigValue* const value = object_.Find(key);
  const ConfigValue& place = value != nullptr ? *value : object_;
  return ConfigError(file_name_, place.line, place.column, PathTo(key), message);
}

void ConfigFields::Adopt(const absl::Status& status) { status_.Update(status); }

std::string ConfigFields::PathTo(absl::string_view key) const {
  return absl::StrCat(path_, path_.empty() || key.empty() ? "" : ".", key);
}

const ConfigValue* ConfigFields::Typed(absl::string_view key, ConfigValue::Kind kind) {
  const ConfigValue* const value = FindValue(key);
  if (value != nullptr && value->kind != kind) {
    Fail(key, absl::StrCat(ValueText(*value), ": must be ", KindWord(kind)));
    return nullptr;
  }
  return value;
}

void ConfigFields::Assume(absl::string_view key, absl::string_view value, absl::string_view why) {
  assumed_->push_back(absl::StrCat(key, ": ", value, ", ", why));
}

}  // namespace lastflop
