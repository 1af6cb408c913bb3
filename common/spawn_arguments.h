#pragma once

#include <map>
#include <string>
#include <vector>

// What posix_spawn is given.
namespace lastflop {

// The strings as an array that a null ends. They outlive it.
std::vector<char*> NullTerminated(std::vector<std::string>& strings);

// The environment of this process with `added` on top, as "NAME=value".
std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& added);

}  // namespace lastflop
