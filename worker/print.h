#pragma once

#include <string>

namespace lastflop {

// `lastflop-worker --print WHAT`: one JSON document on stdout, for the command line, which sees no
// kernel and no device itself. "devices": what workers
// can be given, and why GPUs that are there are not among them; "machine": the Machine around
// `device`, its speeds measured; "calibration": the same once nobody else measures there;
// "kernels": every kernel with formats and backends; "doctor": findings, each with what it would
// spoil. Returns an exit code.
int PrintAboutHost(const std::string& what, const std::string& device);

}  // namespace lastflop
