#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lastflop {

// One line of `key=value` pairs on stderr: `2026-01-31T12:00:00.123Z info event=lease trial_id=t1`.
// Values with spaces or quotes are quoted. Thread-safe: one write a line.
enum class LogSeverity { kInfo, kWarning, kError };

using LogFields = std::initializer_list<std::pair<absl::string_view, std::string>>;

// What such a line says after its time and severity: `event=lease trial_id=t1`.
std::string LogText(absl::string_view event, LogFields fields);

void Log(LogSeverity severity, absl::string_view event, LogFields fields);

// Lines under this severity are dropped. Default kInfo.
void SetLogThreshold(LogSeverity least);

}  // namespace lastflop
