// The command lastflop: parses flags, then one function a verb (cli/commands.h).

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "common/exit_codes.h"
#include "common/one_line.h"

namespace lastflop {
namespace {

int Dispatch(const CommandLine& line, Io& io) {
  const std::string& verb = line.verb;
  const CommandFlags& flags = line.flags;
  if (verb == "run") return RunCommand(flags.run, io);
  if (verb == "preview") return PreviewCommand(flags.preview, io);
  if (verb == "submit") return SubmitCommand(flags.submit, io);
  if (verb == "validate") return ValidateCommand(flags.validate, io);
  if (verb == "list") return ListCommand(flags.list, io);
  if (verb == "show") return ShowCommand(flags.show, io);
  if (verb == "watch") return WatchCommand(flags.watch, io);
  if (verb == "cancel") return CancelCommand(flags.cancel, io);
  if (verb == "resume") return ResumeCommand(flags.resume, io);
  if (verb == "report") return ReportCommand(flags.report, io);
  if (verb == "explain") return ExplainCommand(flags.explain, io);
  if (verb == "compare") return CompareCommand(flags.compare, io);
  if (verb == "export") return ExportCommand(flags.exported, io);
  if (verb == "workers") return WorkersCommand(flags.workers, io);
  if (verb == "logs") return LogsCommand(flags.logs, io);
  if (verb == "model") return ModelCommand(flags.model, io);
  if (verb == "predict") return PredictCommand(flags.predict, io);
  if (verb == "import") return ImportCommand(flags.imported, io);
  if (verb == "calibrate") return CalibrateCommand(flags.calibrate, io);
  if (verb == "kernels") {
    return line.sub_verb.empty() ? KernelsCommand(flags.kernels, io)
                                 : KernelBenchCommand(flags.bench, io);
  }
  if (verb == "collectives") return CollectivesCommand(flags.collectives, io);
  return DoctorCommand(flags.doctor, io);
}

int TerminalWidth() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 120;
}

// "--help" or "-h" anywhere, "help [VERB]", and nothing at all.
bool AnswersHelp(const std::vector<std::string>& arguments, int& code) {
  std::string verb;
  bool is_asked = arguments.empty();
  for (const std::string& argument : arguments) {
    is_asked = is_asked || argument == "--help" || argument == "-h" || argument == "help";
    if (verb.empty() && argument != "help" && argument.front() != '-') {
      verb = argument;
    }
  }
  if (!is_asked) {
    return false;
  }
  const absl::string_view text = HelpText(verb.empty() ? "lastflop" : verb);
  if (text.empty()) {
    std::cerr << "lastflop: no verb '" << OneLine(verb) << "'; `lastflop --help` lists them\n";
    code = kExitUsage;
  } else {
    (arguments.empty() ? std::cerr : std::cout) << text;
    code = arguments.empty() ? kExitUsage : kExitFinished;
  }
  return true;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int code = kExitFinished;
  if (arguments.size() == 1 && arguments[0] == "--version") {
    std::cout << "lastflop " << LASTFLOP_VERSION << "\n";
    return code;
  }
  if (AnswersHelp(arguments, code)) {
    return code;
  }
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line.ok()) {
    std::cerr << "lastflop: " << PlainLines(line.status().message()) << "\n";
    return kExitUsage;
  }
  Io io{.out = std::cout,
        .err = std::cerr,
        .is_out_terminal = isatty(STDOUT_FILENO) == 1,
        .is_err_terminal = isatty(STDERR_FILENO) == 1,
        .width = TerminalWidth()};
  return Dispatch(*line, io);
}

// The exit code, unless what was written did not arrive (a full disk).
int CheckOutput(int code) {
  std::cout.flush();
  if (std::cout.good()) {
    return code;
  }
  std::cerr << "lastflop: stdout cannot be written: what was printed is not whole\n";
  return kExitInternal;
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) { return lastflop::CheckOutput(lastflop::Main(argc, argv)); }
