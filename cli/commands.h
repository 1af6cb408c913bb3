#pragma once

#include <ostream>

#include "cli/flags.h"

// One function a verb, each in <verb>_command.cc. Data goes to `out`, messages to `err`; the result
// is the exit code (common/exit_codes.h).
namespace lastflop {

struct Io {
  std::ostream& out;
  std::ostream& err;
  bool is_out_terminal = false;
  bool is_err_terminal = false;
  int width = 120;
};

int RunCommand(const RunFlags& flags, Io& io);
int PreviewCommand(const PreviewFlags& flags, Io& io);
int SubmitCommand(const SubmitFlags& flags, Io& io);
int ValidateCommand(const CampaignFlags& flags, Io& io);
int ListCommand(const ListFlags& flags, Io& io);
int ShowCommand(const IdFlags& flags, Io& io);
int WatchCommand(const IdFlags& flags, Io& io);
int CancelCommand(const IdFlags& flags, Io& io);
int ResumeCommand(const IdFlags& flags, Io& io);
int ReportCommand(const IdFlags& flags, Io& io);
int ExplainCommand(const ExplainFlags& flags, Io& io);
int CompareCommand(const CompareFlags& flags, Io& io);
int ExportCommand(const IdFlags& flags, Io& io);
int WorkersCommand(const ListFlags& flags, Io& io);
int LogsCommand(const LogsFlags& flags, Io& io);
int ModelCommand(const ModelFlags& flags, Io& io);
int PredictCommand(const PredictFlags& flags, Io& io);
int ImportCommand(const ImportFlags& flags, Io& io);
int CalibrateCommand(const CalibrateFlags& flags, Io& io);
int KernelsCommand(const HostFlags& flags, Io& io);
int KernelBenchCommand(const KernelBenchFlags& flags, Io& io);
int DoctorCommand(const HostFlags& flags, Io& io);
int CollectivesCommand(const CollectivesFlags& flags, Io& io);

}  // namespace lastflop
