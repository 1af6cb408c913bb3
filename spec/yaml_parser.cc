// The only file that sees yaml-cpp, and the one that catches what it throws. yaml-cpp is used as an
// event source alone: its node tree keeps the first of two equal keys, reads 010 as 8, and expands
// alias bombs.

#include "spec/yaml_parser.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/utf8.h"

namespace lastflop {
namespace {

constexpr absl::string_view kMergeKey = "<<";

Location ToLocation(const YAML::Mark& mark) {
  return {.line = std::max(mark.line, 0) + 1, .column = std::max(mark.column, 0) + 1};
}

YamlValue ValueAt(YamlValue::Kind kind, const Location& location) {
  YamlValue value;
  value.kind = kind;
  value.location = location;
  return value;
}

// Whether the quoted scalar that starts at `text` (after its anchor and tag) ends in it. yaml-cpp
// takes the end of the file for a closing quote, so a forgotten one would swallow the rest.
bool IsQuoteClosed(absl::string_view text) {
  while (!text.empty() && (text.front() == '!' || text.front() == '&')) {
    text.remove_prefix(std::min(text.find_first_of(" \n"), text.size()));
    text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
  }
  if (text.empty() || (text.front() != '\'' && text.front() != '"')) {
    return true;  // A block.
  }
  const char quote = text.front();
  for (size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) {
        return true;
      }
      ++i;  // '' is a quote in the text.
    }
  }
  return false;
}

// Nodes and text that copying `value` adds.
struct Size {
  size_t nodes = 0;
  size_t bytes = 0;
};

Size SizeOf(const YamlValue& value) {
  Size size{.nodes = 1, .bytes = value.text.size()};
  const auto add = [&size](const Size& part) {
    size.nodes += part.nodes;
    size.bytes += part.bytes;
  };
  for (const YamlValue& item : value.items) {
    add(SizeOf(item));
  }
  for (const YamlEntry& entry : value.entries) {
    add(SizeOf(entry.value));
    size.bytes += entry.key.size();
  }
  return size;
}

// Builds the tree from the events of one document. After the first error it ignores the rest: the
// parser itself never copies an alias, so its own work is bounded by the file.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view text, const YamlLimits& limits, Diagnostics& diagnostics)
      : text_(text), limits_(limits), diagnostics_(diagnostics) {}

  void OnDocumentStart(const YAML::Mark& mark) override { start_ = ToLocation(mark); }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    AddLeaf(ValueAt(YamlValue::Kind::kNull, ToLocation(mark)), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Location location = ToLocation(mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      return Fail(location, "an alias stands inside the value that it names");
    }
    YamlValue copy = found->second.value;
    if (!Spend(location, found->second.size)) {
      return;
    }
    copy.location = location;
    AddLeaf(std::move(copy), 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool is_null = tag == "?" && (value == "~" || value == "null");
    if (!IsKnownTag(tag)) {
      return Fail(ToLocation(mark), absl::StrCat("the tag ", tag, " is not accepted"));
    }
    if (is_null) {
      return AddLeaf(ValueAt(YamlValue::Kind::kNull, ToLocation(mark)), anchor);
    }
    YamlValue scalar = ValueAt(YamlValue::Kind::kScalar, ToLocation(mark));
    scalar.text = value;
    scalar.is_quoted = tag != "?";
    if (scalar.is_quoted && !IsQuoteClosed(TextAt(mark))) {
      return Fail(scalar.location, "the quote that opens here is not closed");
    }
    AddLeaf(std::move(scalar), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlValue::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlValue::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  // Where the reader is, for errors of the parser: "workload.points[2]".
  std::string Path() const {
    std::string path;
    for (const Frame& frame : open_) {
      if (frame.value.kind == YamlValue::Kind::kList) {
        path = IndexPath(path, frame.value.items.size());
      } else if (frame.key.has_value()) {
        path = JoinPath(path, frame.key->key);
      }
    }
    return path;
  }

  const Location& start() const { return start_; }
  bool has_root() const { return root_.has_value(); }
  YamlValue TakeRoot() { return std::move(*root_); }

 private:
  struct Frame {
    YamlValue value;
    YAML::anchor_t anchor = 0;
    std::optional<YamlEntry> key;          // kMap: read, its value is next.
    bool is_merge = false;                 // `key` is an unquoted <<.
    std::map<std::string, int> key_lines;  // kMap: lines of the keys so far.
    std::optional<YamlEntry> merge;        // kMap: the << entry.
  };
  struct Anchored {
    YamlValue value;
    Size size;
  };

  static bool IsKnownTag(const std::string& tag) {
    return tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str";
  }

  absl::string_view TextAt(const YAML::Mark& mark) const {
    return text_.substr(std::min(static_cast<size_t>(std::max(mark.pos, 0)), text_.size()));
  }

  void Fail(const Location& location, absl::string_view message) {
    if (!has_failed_) {
      diagnostics_.Error(location, Path(), message);
    }
    has_failed_ = true;
  }

  bool Spend(const Location& location, const Size& size) {
    num_nodes_ += size.nodes;
    num_bytes_ += size.bytes;
    if (num_nodes_ > limits_.nodes || num_bytes_ > limits_.copied_bytes) {
      Fail(location, absl::StrCat("with its aliases copied out the file is beyond ", limits_.nodes,
                                  " values or ", limits_.copied_bytes, " bytes"));
    }
    return !has_failed_;
  }

  void AddLeaf(YamlValue value, YAML::anchor_t anchor) {
    if (has_failed_ || !Spend(value.location, {.nodes = 1, .bytes = value.text.size()})) {
      return;
    }
    Attach(std::move(value), anchor);
  }

  void Open(YamlValue::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    const Location location = ToLocation(mark);
    if (has_failed_) {
      return;
    }
    if (!IsKnownTag(tag)) {
      return Fail(location, absl::StrCat("the tag ", tag, " is not accepted"));
    }
    if (open_.size() >= static_cast<size_t>(limits_.depth)) {
      return Fail(location, absl::StrCat("more than ", limits_.depth, " levels deep"));
    }
    if (!Spend(location, {.nodes = 1})) {
      return;
    }
    if (!open_.empty() && open_.back().value.kind == YamlValue::Kind::kMap &&
        !open_.back().key.has_value()) {
      return Fail(location, "a key must be text, not a list or a map");
    }
    Frame frame;
    frame.value = ValueAt(kind, location);
    frame.anchor = anchor;
    open_.push_back(std::move(frame));
  }

  void Close() {
    if (has_failed_) {
      return;
    }
    Frame frame = std::move(open_.back());
    open_.pop_back();
    if (frame.value.kind == YamlValue::Kind::kMap && !Merge(frame)) {
      return;
    }
    Attach(std::move(frame.value), frame.anchor);
  }

  // Hands a complete value to the collection around it.
  void Attach(YamlValue value, YAML::anchor_t anchor) {
    if (anchor != 0) {
      const Size size = SizeOf(value);
      if (!Spend(value.location, size)) {
        return;
      }
      anchors_[anchor] = {.value = value, .size = size};
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.kind == YamlValue::Kind::kList) {
      open_.back().value.items.push_back(std::move(value));
    } else if (!open_.back().key.has_value()) {
      AttachKey(value);
    } else {
      AttachEntry(std::move(value));
    }
  }

  void AttachEntry(YamlValue value) {
    Frame& frame = open_.back();
    YamlEntry entry = std::move(*frame.key);
    frame.key.reset();
    entry.value = std::move(value);
    if (entry.value.kind == YamlValue::Kind::kNull) {
      entry.value.location = entry.location;  // The parser points at what follows.
    }
    if (frame.is_merge) {
      frame.merge = std::move(entry);
    } else {
      frame.value.entries.push_back(std::move(entry));
    }
  }

  void AttachKey(const YamlValue& key) {
    Frame& frame = open_.back();
    if (key.kind != YamlValue::Kind::kScalar || key.text.empty()) {
      return Fail(key.location, absl::StrCat("a key must be text, not ", KindName(key)));
    }
    frame.key = YamlEntry{.key = key.text, .location = key.location, .value = {}};
    // A quoted "<<" is an ordinary key, which no reader knows: it is refused there.
    frame.is_merge = key.text == kMergeKey && !key.is_quoted;
    const auto [first, is_new] = frame.key_lines.emplace(key.text, key.location.line);
    if (!is_new) {
      Fail(key.location,
           absl::StrCat("this key is here twice; the first one is on line ", first->second));
    }
  }

  // Adds to the map what its `<<` has (a map or a list of maps, the first one winning) and it has
  // not itself.
  bool Merge(Frame& frame) {
    if (!frame.merge.has_value()) {
      return true;
    }
    const YamlValue& merged = frame.merge->value;
    std::vector<const YamlValue*> sources;
    if (merged.kind == YamlValue::Kind::kMap) {
      sources.push_back(&merged);
    }
    for (const YamlValue& item : merged.items) {
      sources.push_back(&item);
    }
    const bool all_maps = std::all_of(sources.begin(), sources.end(), [](const YamlValue* source) {
      return source->kind == YamlValue::Kind::kMap;
    });
    if (sources.empty() || !all_maps) {
      Fail(frame.merge->location,
           absl::StrCat("<< takes a map or a list of maps, not ", KindName(merged)));
      return false;
    }
    for (const YamlValue* source : sources) {
      for (const YamlEntry& entry : source->entries) {
        if (frame.key_lines.emplace(entry.key, entry.location.line).second) {
          frame.value.entries.push_back(entry);
        }
      }
    }
    return true;
  }

  const absl::string_view text_;  // What is parsed. Outlives this.
  const YamlLimits& limits_;      // Outlives this.
  Diagnostics& diagnostics_;      // Outlives this.
  Location start_;
  std::vector<Frame> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::optional<YamlValue> root_;
  size_t num_nodes_ = 0;
  size_t num_bytes_ = 0;
  bool has_failed_ = false;
};

Location LocationOf(absl::string_view text, size_t offset) {
  const absl::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n');
  return {.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          .column = static_cast<int>(
              offset - (line_start == absl::string_view::npos ? 0 : line_start + 1) + 1)};
}

// Refuses what the parser would take for something else. `text` has LF line ends.
bool CheckBytes(absl::string_view text, Diagnostics& diagnostics) {
  if (const std::optional<size_t> invalid = FirstInvalidUtf8(text)) {
    diagnostics.Error(LocationOf(text, *invalid), "",
                      absl::StrCat("byte 0x", absl::Hex(static_cast<unsigned char>(text[*invalid])),
                                   " is not UTF-8 (is the file Latin-1 or UTF-16?)"));
    return false;
  }
  bool is_indentation = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      is_indentation = true;
    } else if (c == '\t' && is_indentation) {
      diagnostics.Error(LocationOf(text, i), "",
                        "a tab stands in the indentation; YAML indents with spaces only");
      return false;
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
      diagnostics.Error(
          LocationOf(text, i), "",
          absl::StrCat("control character 0x", absl::Hex(static_cast<int>(c)), " is not accepted"));
      return false;
    } else if (c != ' ') {
      is_indentation = false;
    }
  }
  return true;
}

std::string NormalizeLineEnds(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");
  return absl::StrReplaceAll(text, {{"\r\n", "\n"}, {"\r", "\n"}});
}

// Events of the first document into `builder`; then the stream must end.
void ParseDocument(const std::string& text, TreeBuilder& builder, const YamlLimits& limits,
                   Diagnostics& diagnostics) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      diagnostics.Error({}, "", "the file is empty");
      return;
    }
    Diagnostics second_errors("");
    TreeBuilder second(text, limits, second_errors);
    if (parser.HandleNextDocument(second)) {
      diagnostics.Error(second.start(), "", "a second document starts here; a file has one");
    }
  } catch (const YAML::DeepRecursion& error) {
    // Of brackets that are never closed the parser makes keys: what the builder said of them is not
    // what is wrong.
    diagnostics.Cause(ToLocation(error.mark), "",
                      absl::StrCat("more than ", limits.depth, " levels deep"));
  } catch (const YAML::Exception& error) {
    diagnostics.Error(ToLocation(error.mark), builder.Path(), error.msg);
  } catch (const std::exception& error) {
    diagnostics.Error({}, "", absl::StrCat("the YAML parser gave up: ", error.what()));
  }
}

}  // namespace

YamlValue ParseYaml(absl::string_view text, Diagnostics& diagnostics, const YamlLimits& limits) {
  if (text.size() > limits.bytes) {
    diagnostics.Error(
        {}, "",
        absl::StrCat("the file has ", text.size(), " bytes; at most ", limits.bytes, " are read"));
    return {};
  }
  const std::string normalized = NormalizeLineEnds(text);
  if (!CheckBytes(normalized, diagnostics)) {
    return {};
  }
  TreeBuilder builder(normalized, limits, diagnostics);
  ParseDocument(normalized, builder, limits, diagnostics);
  if (!diagnostics.ok() || !builder.has_root()) {
    return {};
  }
  YamlValue root = builder.TakeRoot();
  if (root.kind == YamlValue::Kind::kNull) {
    diagnostics.Error(root.location, "", "the file is empty");
  }
  return root;
}

}  // namespace lastflop
