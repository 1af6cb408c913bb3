#pragma once

#include <map>
#include <string>

#include "common/machine.h"

namespace lastflop {

// A machine as YAML that ReadMachine (spec/machine_reader.h) reads back: every number with its
// origin, by its key ("cold_read", "memory_bytes"); machine.source is that of the file and of what
// `origins` does not name. What is unknown is left out. Numbers keep six digits, whole ones all.
std::string MachineYaml(const Machine& machine, const std::map<std::string, std::string>& origins);

}  // namespace lastflop
