#include "common/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/one_line.h"

namespace lastflop {
namespace {

std::atomic<LogSeverity> threshold{LogSeverity::kInfo};

absl::string_view Name(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kInfo:
      return "info";
    case LogSeverity::kWarning:
      return "warning";
    case LogSeverity::kError:
      return "error";
  }
  return "info";
}

std::string UtcNow() {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto now_ms =
      duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(now_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                         utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now_ms % 1000);
}

std::string Quoted(absl::string_view value) {
  if (!value.empty() && value.find_first_of(" \"=\\") == absl::string_view::npos &&
      OneLine(value) == value) {
    return std::string(value);
  }
  return absl::StrCat("\"", absl::CEscape(value), "\"");
}

}  // namespace

std::string LogText(absl::string_view event, LogFields fields) {
  std::string text = absl::StrCat("event=", Quoted(event));
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&text, " ", key, "=", Quoted(value));
  }
  return text;
}

void Log(LogSeverity severity, absl::string_view event, LogFields fields) {
  if (severity < threshold.load(std::memory_order_relaxed)) {
    return;
  }
  const std::string line =
      absl::StrCat(UtcNow(), " ", Name(severity), " ", LogText(event, fields), "\n");
  // One write a line keeps the lines of several processes apart; nothing can be done about a
  // closed stderr.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void SetLogThreshold(LogSeverity least) { threshold.store(least, std::memory_order_relaxed); }

}  // namespace lastflop
