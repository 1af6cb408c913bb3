#pragma once

#include "absl/strings/string_view.h"

namespace lastflop {

// How a worker starts its child: `lastflop-worker --child PARENT_PID`, with the pipe on this
// descriptor.
inline constexpr absl::string_view kChildFlag = "--child";
inline constexpr int kChildPipeFd = 3;
// Where the child finds the memory that says where in a plugin it is (worker/plugin_watch.h).
inline constexpr int kPluginWatchFd = 4;

// The child's whole life: serves attempts from its pipe until the worker is gone. Returns the exit
// code. Dies with its parent (`parent_pid`), also when that is killed.
int RunChild(int parent_pid);

}  // namespace lastflop
