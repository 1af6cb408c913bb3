#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "spec/yaml_value.h"

namespace lastflop {

// Everything that is wrong with one file, collected so that a user sees it at once. Single thread.
class Diagnostics {
 public:
  // `file_name` is how messages name the file; `overrides` are the --set texts by index.
  explicit Diagnostics(std::string file_name, std::vector<std::string> overrides = {});

  // `path` is that of the value: "workload.points[2].batch"; "" for the file as a whole. The
  // message says the value and the rule in one line.
  void Error(const Location& location, absl::string_view path, absl::string_view message);

  // An error of another file that the value names: its lines, each behind this place.
  void Nested(const Location& location, absl::string_view path, const absl::Status& status);

  // An error from which all others so far follow: they are forgotten.
  void Cause(const Location& location, absl::string_view path, absl::string_view message);

  bool ok() const { return errors_.empty(); }

  // What the first error in order of the file says, without its place and path. Needs one.
  const std::string& FirstMessage() const;

  // OK, or InvalidArgument with one line `FILE:LINE:COLUMN: path: message` an error, in order of
  // the file.
  absl::Status ToStatus() const;

  const std::string& file_name() const { return file_name_; }

 private:
  struct Entry {
    Location location;
    std::string text;     // With file, place and path.
    std::string message;  // Alone.
  };

  static bool ComesBefore(const Entry& a, const Entry& b);

  std::string file_name_;
  std::vector<std::string> overrides_;
  std::vector<Entry> errors_;
};

// "workload" + "points" -> "workload.points"; an empty parent gives the key alone.
std::string JoinPath(absl::string_view parent, absl::string_view key);
std::string IndexPath(absl::string_view parent, size_t index);

}  // namespace lastflop
