#pragma once

#include <atomic>

namespace lastflop {

// Set once SIGINT, SIGTERM or SIGHUP has come, after CatchInterrupts(); commands that wait poll it.
// The one mutable global of the command line: a signal handler reaches nothing else.
const std::atomic<bool>& InterruptFlag();

// From here on those signals set the flag (SIGHUP not under nohup, which ignores it), and writing
// to a pipe that nobody reads any more is a failed write, not a silent end of this process.
void CatchInterrupts();

// Whether `file_descriptor` is a pipe whose reader has gone.
bool IsReaderGone(int file_descriptor);

}  // namespace lastflop
