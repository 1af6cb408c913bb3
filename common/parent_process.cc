#include "common/parent_process.h"

#include <sys/prctl.h>
#include <unistd.h>

namespace lastflop {

bool DieWithParent(int parent_pid, int signal) {
  // The signal covers a parent that ends later; the comparison one that has ended before.
  prctl(PR_SET_PDEATHSIG, signal);
  return getppid() == parent_pid;
}

}  // namespace lastflop
