#include "spec/config_json.h"

#include <cstddef>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "spec/diagnostics.h"

namespace lastflop {
namespace {

constexpr size_t kMaxDepth = 64;

// Walks the text and tells how far the parser has read: its events carry no position of their own.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** progress) : at_(at), progress_(progress) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *progress_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** progress_;  // Outlives this.
};

// Receives the parser's events and builds the tree. nlohmann calls its methods by these names.
class TreeBuilder {
 public:
  TreeBuilder(absl::string_view text, absl::string_view file_name, const char* const* progress)
      : text_(text), file_name_(file_name), progress_(progress) {}

  bool null() { return Add({}); }
  bool boolean(bool value) { return Add({.kind = ConfigValue::Kind::kBool, .boolean = value}); }
  bool number_integer(int64_t value) {
    return Add({.kind = ConfigValue::Kind::kInteger,
                .integer = value,
                .number = static_cast<double>(value)});
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return number_float(static_cast<double>(value), "");
    }
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& /*text*/) {
    return Add({.kind = ConfigValue::Kind::kNumber, .number = value});
  }
  bool string(std::string& value) {
    return Add({.kind = ConfigValue::Kind::kString, .text = std::move(value)});
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // Not in JSON text.
  bool start_object(size_t /*size*/) { return Open(ConfigValue::Kind::kObject); }
  bool start_array(size_t /*size*/) { return Open(ConfigValue::Kind::kArray); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    Frame& frame = open_.back();
    const auto [line, column] = LineAndColumn(KeyStart());
    if (!frame.keys.insert(name).second) {
      status_ = ConfigError(file_name_, line, column, PathTo(name), "the key stands twice");
      return false;
    }
    frame.key = std::move(name);
    frame.key_line = line;
    frame.key_column = column;
    return true;
  }

  template <typename Exception>
  bool parse_error(size_t position, const std::string& token, const Exception& /*exception*/) {
    const size_t offset = position == 0 ? 0 : position - 1;
    const auto [line, column] = LineAndColumn(offset);
    const std::string near = token.empty() || offset >= text_.size()
                                 ? "the end of the file"
                                 : absl::StrCat("`", token, "`");
    status_ = ConfigError(file_name_, line, column, "", absl::StrCat("not JSON at ", near));
    return false;
  }

  absl::StatusOr<ConfigValue> Take() {
    if (!status_.ok()) {
      return status_;
    }
    return std::move(root_);
  }

 private:
  struct Frame {
    ConfigValue* value;    // Into root_: stays put, since only the deepest open value grows.
    std::string key = "";  // Of the member that is being read.
    std::set<std::string> keys = {};  // All so far.
    int key_line = 1;
    int key_column = 1;
  };

  // Puts `value` where the parser is, and returns its place in the tree.
  ConfigValue* Place(ConfigValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Frame& frame = open_.back();
    if (frame.value->kind == ConfigValue::Kind::kArray) {
      value.line = frame.value->line;
      value.column = frame.value->column;
      return &frame.value->items.emplace_back(std::move(value));
    }
    value.line = frame.key_line;
    value.column = frame.key_column;
    return &frame.value->members.emplace_back(frame.key, std::move(value)).second;
  }

  bool Add(ConfigValue value) {
    Place(std::move(value));
    return true;
  }

  bool Open(ConfigValue::Kind kind) {
    if (open_.size() >= kMaxDepth) {
      const auto [line, column] = LineAndColumn(Offset());
      status_ = ConfigError(file_name_, line, column, "",
                            absl::StrCat("nested deeper than ", kMaxDepth, " levels"));
      return false;
    }
    ConfigValue* const value = Place({.kind = kind});
    open_.push_back({.value = value});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  size_t Offset() const { return static_cast<size_t>(*progress_ - text_.data()); }

  // Offset of the quote that opens the key whose closing quote was just read.
  size_t KeyStart() const {
    size_t at = Offset();
    at = at >= 2 ? at - 2 : 0;  // Before the closing quote.
    while (at > 0) {
      size_t num_backslashes = 0;
      while (num_backslashes < at && text_[at - 1 - num_backslashes] == '\\') {
        ++num_backslashes;
      }
      if (text_[at] == '"' && num_backslashes % 2 == 0) {
        break;
      }
      --at;
    }
    return at;
  }

  // Offsets are asked for in the order of the file, so that a large one is walked once.
  std::pair<int, int> LineAndColumn(size_t offset) {
    for (; counted_ < offset && counted_ < text_.size(); ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        column_ = 1;
      } else {
        ++column_;
      }
    }
    return {line_, column_};
  }

  std::string PathTo(absl::string_view name) const {
    std::string path;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      if (!open_[i].key.empty()) {
        absl::StrAppend(&path, open_[i].key, ".");
      }
    }
    return absl::StrCat(path, name);
  }

  absl::string_view text_;
  absl::string_view file_name_;
  const char* const* progress_;  // Outlives this.
  ConfigValue root_;
  std::vector<Frame> open_;
  size_t counted_ = 0;  // line_ and column_ are of this offset.
  int line_ = 1;
  int column_ = 1;
  absl::Status status_;
};

}  // namespace

const ConfigValue* ConfigValue::Find(absl::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

absl::string_view KindWord(ConfigValue::Kind kind) {
  switch (kind) {
    case ConfigValue::Kind::kNull:
      return "null";
    case ConfigValue::Kind::kBool:
      return "true or false";
    case ConfigValue::Kind::kInteger:
      return "a whole number";
    case ConfigValue::Kind::kNumber:
      return "a number";
    case ConfigValue::Kind::kString:
      return "a string";
    case ConfigValue::Kind::kArray:
      return "a list";
    case ConfigValue::Kind::kObject:
      return "an object";
  }
  return "unknown";
}

absl::Status ConfigError(absl::string_view file_name, int line, int column, absl::string_view path,
                         absl::string_view message) {
  Diagnostics diagnostics{std::string(file_name)};
  diagnostics.Error({.line = line, .column = column}, path, message);
  return diagnostics.ToStatus();
}

absl::StatusOr<ConfigValue> ParseConfigJson(absl::string_view text, absl::string_view file_name) {
  const char* progress = text.data();
  TreeBuilder builder(text, file_name, &progress);
  const CountingIterator begin(text.data(), &progress);
  const CountingIterator end(text.data() + text.size(), &progress);
  // The builder's status is the result; what this returns is only whether there is one.
  static_cast<void>(nlohmann::json::sax_parse(begin, end, &builder));
  return builder.Take();
}

}  // namespace lastflop
