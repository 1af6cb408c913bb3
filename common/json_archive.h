#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/plan.h"
#include "common/suggest.h"
#include "common/words.h"
#include "nlohmann/json.hpp"

// Plain structs to JSON and back from one list of members, so that the two directions cannot
// disagree. A struct T has a function found by argument-dependent lookup
//
//   template <typename Archive, Is<T> Value>
//   void Members(Archive& archive, Value& value) { archive("name", value.name); ... }
//
// Include it in .cc files only: it brings the JSON library with it.
namespace lastflop {

template <typename Value, typename T>
concept Is = std::same_as<std::remove_const_t<Value>, T>;

template <typename T>
concept HasEnumWords = requires {
  EnumWords<T>::kWords;
};

// Writes members in call order. Doubles keep all their digits; an unset optional is null.
class JsonWriter {
 public:
  using Json = nlohmann::ordered_json;

  template <typename T>
  void operator()(absl::string_view key, const T& value) {
    json_[std::string(key)] = Write(value);
  }

  template <typename T>
  static Json Write(const T& value) {
    if constexpr (HasEnumWords<T>) {
      return std::string(ToWord(value));
    } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
      return value;
    } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
      return value.count();
    } else if constexpr (std::same_as<T, Plan>) {
      return WritePlan(value);
    } else {
      return WriteStructure(value);
    }
  }

 private:
  template <typename T>
  static Json WriteStructure(const T& value) {
    JsonWriter writer;
    Members(writer, value);
    return std::move(writer.json_);
  }
  template <typename T>
  static Json WriteStructure(const std::optional<T>& value) {
    return value.has_value() ? Write(*value) : Json();
  }
  template <typename T>
  static Json WriteStructure(const std::vector<T>& values) {
    Json json = Json::array();
    for (const T& value : values) {
      json.push_back(Write(value));
    }
    return json;
  }
  template <typename First, typename Second>
  static Json WriteStructure(const std::pair<First, Second>& value) {
    return Json::array({Write(value.first), Write(value.second)});
  }
  static Json WritePlan(const Plan& plan) {
    Json json = Json::object();
    for (const PlanField& field : PlanFields()) {
      json[std::string(field.path)] = field.get(plan);
    }
    return json;
  }

  Json json_ = Json::object();
};

// Reads members; the first error is kept and nothing is read after it. A member that is absent
// keeps its default (an older writer); a key that no member has is an error (a newer one).
class JsonReader {
 public:
  using Json = nlohmann::json;

  // `json` outlives the reader. `path` names it in messages.
  JsonReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  template <typename T>
  void operator()(absl::string_view key, T& value) {
    known_.insert(std::string(key));
    if (!status_.ok() || !json_.is_object()) {
      return;
    }
    const auto found = json_.find(std::string(key));
    if (found != json_.end()) {
      status_ = Read(*found, absl::StrCat(path_, ".", key), value);
    }
  }

  // InvalidArgument: the path, what stands there and what was expected.
  template <typename T>
  static absl::Status Read(const Json& json, const std::string& path, T& value) {
    if constexpr (HasEnumWords<T>) {
      return ReadWord(json, path, value);
    } else if constexpr (std::same_as<T, bool>) {
      return json.is_boolean() ? Store(json.get<bool>(), value) : Expected(json, path, "a bool");
    } else if constexpr (std::integral<T>) {
      return ReadInteger(json, path, value);
    } else if constexpr (std::floating_point<T>) {
      return json.is_number() ? Store(json.get<T>(), value) : Expected(json, path, "a number");
    } else if constexpr (std::same_as<T, std::string>) {
      return json.is_string() ? Store(json.get<T>(), value) : Expected(json, path, "text");
    } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
      int64_t count = 0;
      absl::Status status = ReadInteger(json, path, count);
      value = std::chrono::milliseconds(count);
      return status;
    } else if constexpr (std::same_as<T, Plan>) {
      return ReadPlan(json, path, value);
    } else {
      return ReadStructure(json, path, value);
    }
  }

 private:
  static absl::Status Expected(const Json& json, absl::string_view path, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ",
        json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace).substr(0, 60),
        " must be ", what));
  }
  template <typename T>
  static absl::Status Store(T read, T& value) {
    value = std::move(read);
    return absl::OkStatus();
  }
  template <typename E>
  static absl::Status ReadWord(const Json& json, const std::string& path, E& value) {
    const std::optional<E> read =
        json.is_string() ? FromWord<E>(json.get_ref<const std::string&>()) : std::nullopt;
    return read.has_value() ? Store(*read, value) : Expected(json, path, AllWords<E>());
  }
  template <typename T>
  static absl::Status ReadInteger(const Json& json, const std::string& path, T& value) {
    if (json.is_number_unsigned() && std::in_range<T>(json.get<uint64_t>())) {
      return Store(static_cast<T>(json.get<uint64_t>()), value);
    }
    if (json.is_number_integer() && !json.is_number_unsigned() &&
        std::in_range<T>(json.get<int64_t>())) {
      return Store(static_cast<T>(json.get<int64_t>()), value);
    }
    return Expected(json, path, "a whole number in range");
  }
  static absl::Status ReadPlan(const Json& json, const std::string& path, Plan& plan) {
    if (!json.is_object()) {
      return Expected(json, path, "a plan");
    }
    Plan read;
    for (const auto& [key, text] : json.items()) {
      if (!text.is_string()) {
        return Expected(text, absl::StrCat(path, ".", key), "text");
      }
      const absl::Status status = SetPlanField(key, text.get_ref<const std::string&>(), read);
      if (!status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
      }
    }
    return Store(std::move(read), plan);
  }
  template <typename T>
  static absl::Status ReadStructure(const Json& json, const std::string& path, T& value) {
    JsonReader reader(json, path);
    Members(reader, value);
    return reader.Finish();
  }
  template <typename T>
  static absl::Status ReadStructure(const Json& json, const std::string& path,
                                    std::optional<T>& value) {
    value.reset();
    return json.is_null() ? absl::OkStatus() : Read(json, path, value.emplace());
  }
  template <typename T>
  static absl::Status ReadStructure(const Json& json, const std::string& path,
                                    std::vector<T>& values) {
    if (!json.is_array()) {
      return Expected(json, path, "a list");
    }
    values.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      T value{};
      if (absl::Status status = Read(json[i], absl::StrCat(path, "[", i, "]"), value);
          !status.ok()) {
        return status;
      }
      values.push_back(std::move(value));
    }
    return absl::OkStatus();
  }
  template <typename First, typename Second>
  static absl::Status ReadStructure(const Json& json, const std::string& path,
                                    std::pair<First, Second>& value) {
    if (!json.is_array() || json.size() != 2) {
      return Expected(json, path, "a list of two");
    }
    absl::Status status = Read(json[0], absl::StrCat(path, "[0]"), value.first);
    return status.ok() ? Read(json[1], absl::StrCat(path, "[1]"), value.second) : status;
  }

  absl::Status Finish() const {
    if (!status_.ok()) {
      return status_;
    }
    if (!json_.is_object()) {
      return Expected(json_, path_, "an object");
    }
    for (const auto& [key, value] : json_.items()) {
      if (!known_.contains(key)) {
        return absl::InvalidArgumentError(absl::StrCat(
            path_, ": unknown key \"", key, "\"", DidYouMean(key, {known_.begin(), known_.end()})));
      }
    }
    return absl::OkStatus();
  }

  const Json& json_;  // Outlives this.
  const std::string path_;
  std::set<std::string> known_;
  absl::Status status_;
};

// A T of `text`. InvalidArgument begins with `name`: no JSON, or as JsonReader::Read.
template <typename T>
absl::StatusOr<T> ParseJson(absl::string_view text, const char* name) {
  const JsonReader::Json json =
      JsonReader::Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": this is no JSON"));
  }
  T value;
  if (const absl::Status read = JsonReader::Read(json, name, value); !read.ok()) {
    return read;
  }
  return value;
}

}  // namespace lastflop
