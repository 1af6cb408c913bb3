#include "cli/progress.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/one_line.h"

namespace lastflop {
namespace {

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  return whole < 120 ? absl::StrFormat("%d s", whole)
                     : absl::StrFormat("%d min %d s", whole / 60, whole % 60);
}

bool EndsATrial(const Event& event) {
  return event.kind == "trial" && event.state != "running" && event.state != "pending";
}

// A worker that waits for another process's measurement says whose (worker/measuring_hold.h).
bool WaitsForOthers(const Event& event) {
  return event.kind == "progress" && absl::StrContains(event.state, ", held by ");
}

}  // namespace

std::string ProgressText(const Event& event) {
  const CampaignSummary& summary = event.summary;
  std::string text =
      absl::StrCat(summary.num_done + summary.num_failed, "/", summary.num_trials, " trials");
  if (summary.num_lost_out > 0) {
    absl::StrAppend(&text, ", ", summary.num_lost_out, " lost out");
  }
  if (summary.num_cancelled > 0) {
    absl::StrAppend(&text, ", ", summary.num_cancelled, " cancelled");
  }
  if (WaitsForOthers(event)) {
    absl::StrAppend(&text, " · ", event.state);
  }
  if (!event.current.empty()) {
    absl::StrAppend(&text, " · ", event.current);
  }
  if (!event.best.empty()) {
    absl::StrAppend(&text, " · best ", event.best);
  }
  if (event.seconds_left > 0) {
    absl::StrAppend(&text, " · ", Duration(event.seconds_left), " left");
  }
  return text;
}

ProgressPrinter::~ProgressPrinter() { EndLine(); }

void ProgressPrinter::EndLine() {
  if (has_live_line_) {
    err_ << "\n" << std::flush;
    has_live_line_ = false;
  }
}

void ProgressPrinter::Show(const Event& event) {
  std::string text = ProgressText(event);
  if (is_terminal_) {
    text = OneLine(text);
    // Cut by code points: half of one would spoil the terminal.
    int columns = 0;
    size_t end = 0;
    for (; end < text.size(); ++end) {
      const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
      columns += starts ? 1 : 0;
      if (columns >= width_) {
        break;
      }
    }
    err_ << "\r\033[K" << text.substr(0, end) << std::flush;
    has_live_line_ = true;
    return;
  }
  if (EndsATrial(event)) {
    absl::StrAppend(&text, " · ", event.trial_id, " ", event.intervention_id, " ", event.state);
    if (!event.message.empty()) {
      absl::StrAppend(&text, ": ", event.message);
    }
  }
  text = OneLine(text);
  if (text != last_) {
    err_ << text << "\n" << std::flush;
    last_ = text;
  }
}

}  // namespace lastflop
