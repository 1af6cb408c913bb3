#pragma once

#include <string>

namespace lastflop {

// `lastflop-worker --print WHAT`: one JSON document on stdout, for the command line, which sees no
// kernel and no device itself. "machine": the Machine of this host, its read curve measured;
// "kernels": every kernel with formats and backends; "doctor": findings, each with what it would
// spoil. Returns an exit code.
int PrintAboutHost(const std::string& what);

}  // namespace lastflop
