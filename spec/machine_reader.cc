#include "spec/machine_reader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "spec/diagnostics.h"
#include "spec/map_reader.h"
#include "spec/scalars.h"
#include "spec/text_file.h"
#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

// Reads the machine's keys and gathers where each number is from.
class MachineBuilder {
 public:
  MachineBuilder(const YamlValue& root, Diagnostics& diagnostics)
      : diagnostics_(diagnostics), reader_(root, "", diagnostics) {}

  Machine Build() {
    int64_t schema = 1;
    reader_.Required("schema", schema, IntegerIn(1, 1));
    reader_.Required("name", machine_.name, ParseText);
    reader_.Required("backend", machine_.backend, ParseBackend);
    reader_.Optional("device_name", machine_.device_name, ParseText);
    reader_.Optional("architecture", machine_.architecture, ParseText);
    reader_.Optional("link", machine_.link, ParseLink);
    reader_.Optional("source", file_source_, ParseText);
    Count("num_devices", machine_.num_devices, /*is_required=*/true);
    Count("num_cores", machine_.num_cores, false);
    Count("memory_bytes", machine_.memory_bytes, true);
    Count("l2_bytes", machine_.l2_bytes, false);
    Peak("peak_bandwidth_gb_per_s", machine_.peak_bandwidth_gb_per_s);
    Peak("peak_bf16_tflop_per_s", machine_.peak_bf16_tflop_per_s);
    Peak("peak_fp8_tflop_per_s", machine_.peak_fp8_tflop_per_s);
    Peak("peak_fp4_tflop_per_s", machine_.peak_fp4_tflop_per_s);
    Peak("measured_bf16_tflop_per_s", machine_.measured_bf16_tflop_per_s);
    Peak("link_gb_per_s", machine_.link_gb_per_s);
    Peak("measured_link_gb_per_s", machine_.measured_link_gb_per_s);
    Peak("collective_latency_us", machine_.collective_latency_us);
    Peak("launch_gap_us", machine_.launch_gap_us);
    if (const YamlValue* curve = reader_.Optional("cold_read")) {
      ReadCurve(*curve);
    }
    reader_.Finish();
    if (!file_source_.empty()) {
      sources_.insert(sources_.begin(), file_source_);
    }
    machine_.source = absl::StrJoin(sources_, "; ");
    return std::move(machine_);
  }

 private:
  static absl::StatusOr<std::string> OneOf(const YamlValue& value,
                                           const std::vector<absl::string_view>& words) {
    const std::string rule = absl::StrCat("one of ", absl::StrJoin(words, ", "));
    LASTFLOP_ASSIGN_OR_RETURN(std::string text, ScalarText(value, rule));
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(value), " must be ", rule, DidYouMean(text, words)));
    }
    return text;
  }
  static absl::StatusOr<std::string> ParseBackend(const YamlValue& value) {
    return OneOf(value, {"cpu", "cuda"});
  }
  static absl::StatusOr<std::string> ParseLink(const YamlValue& value) {
    return OneOf(value, {"nvlink", "pcie", "shared_memory"});
  }

  // `key: 8` or `key: {value: 8, source: data sheet}`.
  template <typename T, typename Parse>
  void Sourced(absl::string_view key, const YamlValue* value, T& out, const Parse& parse) {
    if (value == nullptr) {
      return;
    }
    if (value->kind == YamlValue::Kind::kMap) {
      MapReader pair(*value, std::string(key), diagnostics_);
      pair.Required("value", out, parse);
      std::string source;
      if (pair.Required("source", source, ParseText)) {
        sources_.push_back(absl::StrCat(key, ": ", source));
      }
      return pair.Finish();
    }
    auto parsed = parse(*value);
    if (!parsed.ok()) {
      return diagnostics_.Error(value->location, key, parsed.status().message());
    }
    out = *parsed;
    CheckSource(key, value->location);
  }

  void CheckSource(absl::string_view key, const Location& location) {
    if (file_source_.empty()) {
      diagnostics_.Error(location, key,
                         "no source: write {value: ..., source: ...}, or a source for the file");
    }
  }

  void Count(absl::string_view key, int64_t& out, bool is_required) {
    Sourced(key, is_required ? reader_.Required(key) : reader_.Optional(key), out, IntegerIn(1));
  }
  void Peak(absl::string_view key, std::optional<double>& out) {
    Sourced(key, reader_.Optional(key), out, NumberIn(kPositive));
  }

  // `{source: ..., points: [{bytes: 1e6, us: 3.1}, ...]}`, ascending bytes.
  void ReadCurve(const YamlValue& value) {
    MapReader curve(value, "cold_read", diagnostics_);
    std::string source;
    if (curve.Optional("source", source, ParseText)) {
      sources_.push_back(absl::StrCat("cold_read: ", source));
    } else {
      CheckSource("cold_read", value.location);
    }
    const YamlValue* points = curve.Required("points");
    curve.Finish();
    if (points == nullptr) {
      return;
    }
    if (points->kind != YamlValue::Kind::kList || points->items.empty()) {
      return diagnostics_.Error(points->location, "cold_read.points",
                                absl::StrCat(Describe(*points), " must be a list of {bytes, us}"));
    }
    for (size_t i = 0; i < points->items.size(); ++i) {
      ReadCurvePoint point;
      MapReader reader(points->items[i], IndexPath("cold_read.points", i), diagnostics_);
      reader.Required("bytes", point.bytes, NumberIn(kPositive));
      reader.Required("us", point.us, NumberIn(kPositive));
      reader.Finish();
      if (!machine_.cold_read.empty() && point.bytes <= machine_.cold_read.back().bytes) {
        reader.Error("bytes", "must be more bytes than the point before has");
      }
      machine_.cold_read.push_back(point);
    }
  }

  Diagnostics& diagnostics_;  // Outlives this.
  MapReader reader_;
  Machine machine_;
  std::string file_source_;
  std::vector<std::string> sources_;
};

std::vector<std::string> MachinesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".yaml") {
      names.push_back(entry->path().stem().string());
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<Machine> ReadMachine(absl::string_view text, const std::string& file_name) {
  Diagnostics diagnostics(file_name);
  const YamlValue root = ParseYaml(text, diagnostics);
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  Machine machine = MachineBuilder(root, diagnostics).Build();
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  return machine;
}

absl::StatusOr<Machine> ReadMachineFile(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxBytes));
  return ReadMachine(text, path);
}

absl::StatusOr<std::string> FindMachineFile(const std::string& name, const std::string& directory,
                                            const std::string& shared_directory) {
  namespace fs = std::filesystem;
  if (absl::StrContains(name, "/") || absl::EndsWith(name, ".yaml")) {
    return (fs::path(directory) / name).string();
  }
  std::vector<std::string> directories = {(fs::path(directory) / "machines").string()};
  if (!shared_directory.empty()) {
    directories.push_back(shared_directory);
  }
  std::vector<std::string> known;
  for (const std::string& candidate : directories) {
    const fs::path file = fs::path(candidate) / absl::StrCat(name, ".yaml");
    std::error_code error;
    if (fs::exists(file, error)) {
      return file.string();
    }
    for (std::string& machine : MachinesIn(candidate)) {
      known.push_back(std::move(machine));
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return absl::NotFoundError(absl::StrCat(
      "\"", name, "\" is neither auto nor a machine in ", absl::StrJoin(directories, " or "),
      known.empty() ? "" : absl::StrCat("; there are ", absl::StrJoin(known, ", ")),
      DidYouMean(name, {known.begin(), known.end()})));
}

}  // namespace lastflop
