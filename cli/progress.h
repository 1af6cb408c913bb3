#pragma once

#include <ostream>
#include <string>

#include "cli/coordinator_client.h"

namespace lastflop {

// Progress on stderr while a campaign runs. A terminal gets one live line that is rewritten; a pipe
// gets a line for each trial that ends and each change of what runs. Data never goes here.
class ProgressPrinter {
 public:
  ProgressPrinter(std::ostream& err, bool is_terminal, int width)
      : err_(err), is_terminal_(is_terminal), width_(width) {}
  // Ends the live line.
  ~ProgressPrinter();
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void Show(const Event& event);

  // Ends the live line, if there is one, so that other text starts on a line of its own.
  void EndLine();

 private:
  std::ostream& err_;  // Outlives this.
  const bool is_terminal_;
  const int width_;
  bool has_live_line_ = false;
  std::string last_;
};

// "12/24 trials · expert-parallel at decode b64 c4096 · best fused 1.21x · 41 s left".
std::string ProgressText(const Event& event);

}  // namespace lastflop
