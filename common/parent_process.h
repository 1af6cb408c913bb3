#pragma once

namespace lastflop {

// From now on this process gets `signal` when the process that started it ends, however that ends.
// False when the parent is not `parent_pid` any more: it has ended already. Call it on the main
// thread; the parent must have spawned this process from a thread that lives as long as itself.
bool DieWithParent(int parent_pid, int signal);

}  // namespace lastflop
