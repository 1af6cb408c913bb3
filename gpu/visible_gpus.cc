#include "gpu/visible_gpus.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr absl::string_view kGpuPrefix = "GPU-";
constexpr absl::string_view kMigPrefix = "MIG-";

// What the driver's number of an entry is: leading blanks and a sign are taken, what follows the
// digits is not looked at, and too many digits wrap as in C. Nullopt: no digit.
std::optional<int32_t> NumberOf(const std::string& entry) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(entry.c_str(), &end, 10);
  return end == entry.c_str() ? std::nullopt : std::optional(static_cast<int32_t>(value));
}

// Whether `entry` is the beginning of `uuid`; the prefix is upper case, the digits of any.
bool Begins(absl::string_view entry, absl::string_view uuid, absl::string_view prefix) {
  return absl::ConsumePrefix(&entry, prefix) && absl::ConsumePrefix(&uuid, prefix) &&
         absl::StartsWithIgnoreCase(uuid, entry);
}

// A GPU by its number or UUID is the first part of it where it is divided.
VisibleGpu Whole(const std::vector<GpuIdentity>& gpus, int gpu) {
  const std::vector<std::string>& parts = gpus[static_cast<size_t>(gpu)].mig_uuids;
  return {.gpu = gpu, .mig_uuid = parts.empty() ? "" : parts.front()};
}

std::optional<VisibleGpu> ByNumber(const std::vector<GpuIdentity>& gpus, const std::string& entry) {
  const std::optional<int32_t> number = NumberOf(entry);
  if (!number.has_value() || *number < 0 || *number >= static_cast<int32_t>(gpus.size())) {
    return std::nullopt;
  }
  return Whole(gpus, *number);
}

std::optional<VisibleGpu> ByUuid(const std::vector<GpuIdentity>& gpus, absl::string_view entry) {
  entry = absl::StripTrailingAsciiWhitespace(entry);
  std::optional<VisibleGpu> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (Begins(entry, gpus[i].uuid, kGpuPrefix)) {
      if (found.has_value()) {
        return std::nullopt;  // Of several none is meant.
      }
      found = Whole(gpus, static_cast<int>(i));
    }
  }
  return found;
}

// "MIG-<UUID of the part>" or, from older drivers, "MIG-GPU-<UUID of the GPU>/<instance>/<part>".
std::optional<VisibleGpu> ByPart(const std::vector<GpuIdentity>& gpus, absl::string_view entry) {
  entry = absl::StripTrailingAsciiWhitespace(entry);
  std::optional<VisibleGpu> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (const std::string& part : gpus[i].mig_uuids) {
      if (Begins(entry, part, kMigPrefix)) {
        if (found.has_value()) {
          return std::nullopt;
        }
        found = {.gpu = static_cast<int>(i), .mig_uuid = part};
      }
    }
    const std::pair<absl::string_view, absl::string_view> older =
        absl::StrSplit(absl::StripPrefix(entry, kMigPrefix), absl::MaxSplits('/', 1));
    if (!found.has_value() && !gpus[i].mig_uuids.empty() && !older.second.empty() &&
        older.first == gpus[i].uuid) {
      found = {.gpu = static_cast<int>(i), .mig_uuid = std::string(entry)};
    }
  }
  return found;
}

// One part alone, where there is one.
std::vector<VisibleGpu> OnePartAtMost(std::vector<VisibleGpu> visible) {
  const auto part = std::find_if(visible.begin(), visible.end(),
                                 [](const VisibleGpu& one) { return !one.mig_uuid.empty(); });
  return part == visible.end() ? visible : std::vector<VisibleGpu>{*part};
}

}  // namespace

std::vector<VisibleGpu> VisibleGpus(const std::vector<GpuIdentity>& gpus,
                                    const std::optional<std::string>& visible_devices) {
  std::vector<VisibleGpu> visible;
  if (!visible_devices.has_value()) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      visible.push_back(Whole(gpus, static_cast<int>(i)));
    }
    return OnePartAtMost(std::move(visible));
  }
  const bool by_uuid = absl::StartsWith(*visible_devices, kGpuPrefix);
  const bool by_part = absl::StartsWith(*visible_devices, kMigPrefix);
  for (const std::string& entry : std::vector<std::string>(absl::StrSplit(*visible_devices, ','))) {
    const std::optional<VisibleGpu> found = by_uuid   ? ByUuid(gpus, entry)
                                            : by_part ? ByPart(gpus, entry)
                                                      : ByNumber(gpus, entry);
    if (!found.has_value()) {
      break;
    }
    if (std::find(visible.begin(), visible.end(), *found) != visible.end()) {
      return {};
    }
    visible.push_back(*found);
  }
  return OnePartAtMost(std::move(visible));
}

void NumberGpusByBus() { setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); }

std::optional<std::string> VisibleDevicesVariable() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace lastflop
