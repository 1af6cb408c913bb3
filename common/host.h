#pragma once

#include <cstdint>
#include <string>

namespace lastflop {

std::string HostName();

// "BOOT_ID/HOST_NAME": equal on two processes means the same running host (or the same container of
// it), where process ids, Unix sockets and device handles of one mean something to the other.
std::string HostId();

// Whether a process with this id runs on this host, also as another user. A zombie counts as gone.
bool IsProcessAlive(int64_t pid);

}  // namespace lastflop
