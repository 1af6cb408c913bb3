#pragma once

#include <atomic>

namespace lastflop {

// Set once SIGINT or SIGTERM has come, after CatchInterrupts(); commands that wait poll it. The one
// mutable global of the command line: a signal handler reaches nothing else.
const std::atomic<bool>& InterruptFlag();

void CatchInterrupts();

}  // namespace lastflop
