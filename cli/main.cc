// The command lastflop: parses flags, then one function a verb (cli/commands.h).

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/suggest.h"

namespace lastflop {
namespace {

int Dispatch(const CLI::App& app, const CommandFlags& flags, Io& io) {
  const CLI::App& chosen = *app.get_subcommands().front();
  const std::string verb = chosen.get_name();
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
    return chosen.get_subcommands().empty() ? KernelsCommand(flags.kernels, io)
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

// Says so when the first argument is no flag and no verb.
bool IsUnknownVerb(const CLI::App& app, const std::string& verb) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  if (verb.empty() || verb.front() == '-' ||
      std::find(names.begin(), names.end(), verb) != names.end()) {
    return false;
  }
  std::cerr << "lastflop: no verb '" << OneLine(verb) << "'"
            << DidYouMean(verb, {names.begin(), names.end()}) << "; `lastflop --help` lists them\n";
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
  CLI::App app{"lastflop"};
  CommandFlags flags;
  DeclareCommands(app, flags);
  if (IsUnknownVerb(app, arguments.front())) {
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::cerr << "lastflop: " << PlainLines(error.what()) << "\nsee `lastflop --help`\n";
    return kExitUsage;
  }
  Io io{.out = std::cout,
        .err = std::cerr,
        .is_out_terminal = isatty(STDOUT_FILENO) == 1,
        .is_err_terminal = isatty(STDERR_FILENO) == 1,
        .width = TerminalWidth()};
  return Dispatch(app, flags, io);
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
