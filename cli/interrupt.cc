#include "cli/interrupt.h"

#include <poll.h>
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
  struct sigaction of_hangup {};
  if (sigaction(SIGHUP, nullptr, &of_hangup) == 0 && of_hangup.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

bool IsReaderGone(int file_descriptor) {
  pollfd state{.fd = file_descriptor, .events = 0, .revents = 0};
  return poll(&state, 1, /*timeout=*/0) == 1 && (state.revents & POLLERR) != 0;
}

}  // namespace lastflop
