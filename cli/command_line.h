#pragma once

#include <CLI/CLI.hpp>

#include "cli/flags.h"

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

}  // namespace lastflop
