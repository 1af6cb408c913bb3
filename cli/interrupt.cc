#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace lastflop {
namespace {

std::atomic<bool> interrupted{false};

void SetInterrupted(int /*signal*/) { interrupted = true; }

}  // namespace

const std::atomic<bool>& InterruptFlag() { return interrupted; }

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = SetInterrupted;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace lastflop
