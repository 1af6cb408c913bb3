#pragma once

#include <string>
#include <vector>

namespace lastflop {

// One thing about this host that a measurement depends on.
struct Finding {
  std::string severity;  // ok, warning, problem
  std::string subject;   // "memory", "cores", "cuda build" ...
  std::string found;     // What is there, with unit.
  std::string spoils;    // What it would spoil; "" when nothing.
};

// What this process can see of the host without measuring: processors, vector units, memory, load,
// frequency governor, virtualization, and whether GPUs are there that this build cannot use.
std::vector<Finding> ExamineHost();

}  // namespace lastflop
