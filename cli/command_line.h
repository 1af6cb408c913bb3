#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/flags.h"

namespace CLI {
class App;
}

namespace lastflop {

// What the command line gives each verb.
struct CommandFlags {
  RunFlags run;
  PreviewFlags preview;
  SubmitFlags submit;
  CampaignFlags validate;
  ListFlags list;
  IdFlags show, watch, cancel, resume, report, exported;
  ExplainFlags explain;
  CompareFlags compare;
  ListFlags workers;
  LogsFlags logs;
  ModelFlags model;
  HostFlags kernels, doctor;
  KernelBenchFlags bench;
  PredictFlags predict;
  ImportFlags imported;
  CollectivesFlags collectives;
  CalibrateFlags calibrate;
};

// Adds every verb with its flags to `app`, which fills `flags` when it parses. Help texts are
// cli/help/*.txt. Both outlive the parsing.
void DeclareCommands(CLI::App& app, CommandFlags& flags);

struct CommandLine {
  std::string verb;
  std::string sub_verb;  // `bench` of `kernels bench`.
  CommandFlags flags;
};

// Of main's arguments, at least one. InvalidArgument says what is wrong with them.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace lastflop
