#include "spec/machine_writer.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace lastflop {
namespace {

// In double quotes, which hold any text on one line.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted.push_back(c);
    }
  }
  return absl::StrCat(quoted, "\"");
}

class MachineText {
 public:
  explicit MachineText(const std::map<std::string, std::string>& origins) : origins_(origins) {}

  void Text(const std::string& key, const std::string& value) {
    if (!value.empty()) {
      absl::StrAppend(&yaml_, key, ": ", Quoted(value), "\n");
    }
  }
  void Count(const std::string& key, int64_t value) {
    if (value > 0) {
      Number(key, absl::StrCat(value));
    }
  }
  void Peak(const std::string& key, const std::optional<double>& value) {
    if (value.has_value()) {
      Number(key, absl::StrFormat("%.6g", *value));
    }
  }
  void Curve(const std::string& key, const std::vector<ReadCurvePoint>& points) {
    if (points.empty()) {
      return;
    }
    absl::StrAppend(&yaml_, key, ":\n");
    if (const auto origin = origins_.find(key); origin != origins_.end()) {
      absl::StrAppend(&yaml_, "  source: ", Quoted(origin->second), "\n");
    }
    absl::StrAppend(&yaml_, "  points:\n");
    for (const ReadCurvePoint& point : points) {
      absl::StrAppendFormat(&yaml_, "    - {bytes: %.15g, us: %.6g}\n", point.bytes, point.us);
    }
  }

  const std::string& yaml() const { return yaml_; }

 private:
  void Number(const std::string& key, const std::string& value) {
    const auto origin = origins_.find(key);
    if (origin == origins_.end()) {
      absl::StrAppend(&yaml_, key, ": ", value, "\n");
    } else {
      absl::StrAppend(&yaml_, key, ": {value: ", value, ", source: ", Quoted(origin->second),
                      "}\n");
    }
  }

  const std::map<std::string, std::string>& origins_;  // Outlives this.
  std::string yaml_ = "schema: 1\n";
};

}  // namespace

std::string MachineYaml(const Machine& machine, const std::map<std::string, std::string>& origins) {
  MachineText text(origins);
  text.Text("name", machine.name);
  text.Text("backend", machine.backend);
  text.Text("device_name", machine.device_name);
  text.Text("architecture", machine.architecture);
  text.Count("num_devices", machine.num_devices);
  text.Count("num_cores", machine.num_cores);
  text.Count("memory_bytes", machine.memory_bytes);
  text.Count("l2_bytes", machine.l2_bytes);
  text.Peak("peak_bandwidth_gb_per_s", machine.peak_bandwidth_gb_per_s);
  text.Peak("peak_bf16_tflop_per_s", machine.peak_bf16_tflop_per_s);
  text.Peak("peak_fp8_tflop_per_s", machine.peak_fp8_tflop_per_s);
  text.Peak("peak_fp4_tflop_per_s", machine.peak_fp4_tflop_per_s);
  text.Peak("measured_bf16_tflop_per_s", machine.measured_bf16_tflop_per_s);
  text.Text("link", machine.link);
  text.Peak("link_gb_per_s", machine.link_gb_per_s);
  text.Peak("measured_link_gb_per_s", machine.measured_link_gb_per_s);
  text.Peak("collective_latency_us", machine.collective_latency_us);
  text.Peak("launch_gap_us", machine.launch_gap_us);
  text.Curve("cold_read", machine.cold_read);
  text.Text("source", machine.source);
  return text.yaml();
}

}  // namespace lastflop
