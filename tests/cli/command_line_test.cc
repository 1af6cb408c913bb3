#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/help.h"

namespace lastflop {
namespace {

// "--name" of every flag that `text` speaks of at the start of a line.
std::set<std::string> FlagsIn(absl::string_view text) {
  std::set<std::string> flags;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const absl::string_view line = text.substr(start, end - start);
    start = end + 1;
    const size_t dashes = line.find("--");
    if (line.substr(0, 2) != "  " || dashes == absl::string_view::npos || dashes > 6) {
      continue;
    }
    const size_t stop = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", dashes);
    flags.insert(std::string(line.substr(dashes, stop - dashes)));
  }
  flags.erase("--help");
  return flags;
}

// Long names of the flags of `verb` and of its own verbs.
void AddFlags(const CLI::App& verb, std::set<std::string>& flags) {
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.insert("--" + name);
    }
  }
  for (const CLI::App* sub : verb.get_subcommands([](const CLI::App*) { return true; })) {
    AddFlags(*sub, flags);
  }
}

TEST(CommandLineTest, AFlagWinsOverTheEnvironmentsServer) {
  setenv("LASTFLOP_SERVER", "127.0.0.1:1", /*overwrite=*/1);
  const auto parse = [](std::vector<std::string> reversed, CommandFlags& flags) {
    CLI::App app;
    DeclareCommands(app, flags);
    app.parse(std::move(reversed));
  };
  CommandFlags from_file;
  parse({"x.db", "--db", "report"}, from_file);
  EXPECT_EQ(from_file.report.source.db, "x.db");
  EXPECT_EQ(from_file.report.source.server, "");
  CommandFlags from_environment;
  parse({"report"}, from_environment);
  EXPECT_EQ(from_environment.report.source.server, "127.0.0.1:1");
  CommandFlags from_flag;
  parse({"unix:x", "--server", "report"}, from_flag);
  EXPECT_EQ(from_flag.report.source.server, "unix:x");
  CommandFlags both;
  EXPECT_THROW(parse({"x.db", "--db", "unix:x", "--server", "report"}, both), CLI::ParseError);
  CommandFlags local;
  parse({"a=b.so", "--plugin", "resume"}, local);
  EXPECT_EQ(local.resume.source.server, "") << "plugins are of workers that resume starts";
  unsetenv("LASTFLOP_SERVER");
}

TEST(CommandLineTest, ReadsTheDatabaseOfThisFolderWhereNothingElseIsNamed) {
  const auto parse = [](std::vector<std::string> reversed) {
    CLI::App app;
    CommandFlags flags;
    DeclareCommands(app, flags);
    app.parse(std::move(reversed));
    return flags;
  };
  const std::filesystem::path before = std::filesystem::current_path();
  std::string folder = testing::TempDir() + "/command_line_test_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::current_path(folder);
  EXPECT_EQ(parse({"report"}).report.source.db, "") << "there is none";
  std::ofstream("lastflop.db") << "";
  EXPECT_EQ(parse({"report"}).report.source.db, "lastflop.db");
  EXPECT_EQ(parse({"list"}).list.source.db, "lastflop.db");
  EXPECT_EQ(parse({"x.db", "--db", "show"}).show.source.db, "x.db");
  EXPECT_EQ(parse({"", "--db", "list"}).list.source.db, "") << "named, if badly";
  EXPECT_EQ(parse({"unix:x", "--server", "export"}).exported.source.db, "");
  EXPECT_EQ(parse({"--follow", "logs"}).logs.source.db, "") << "a file is not followed";
  setenv("LASTFLOP_SERVER", "127.0.0.1:1", /*overwrite=*/1);
  EXPECT_EQ(parse({"report"}).report.source.db, "");
  unsetenv("LASTFLOP_SERVER");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

TEST(CommandLineTest, RefusesWhatItWouldReadAsSomethingElseOrLeaveOut) {
  const auto message_of = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "lastflop");
    const absl::StatusOr<CommandLine> line =
        ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
    return line.ok() ? std::string("accepted") : std::string(line.status().message());
  };
  using testing::HasSubstr;
  EXPECT_THAT(message_of({"run", "x.yaml", "--plugin", "a=b.so", "--plugin-timeout", "nan"}),
              HasSubstr("nan is no number"));
  EXPECT_THAT(message_of({"run", "x.yaml", "--plugin-timeout", "5"}), HasSubstr("--plugin"));
  EXPECT_EQ(message_of({"run", "x.yaml", "--plugin", "a=b.so", "--plugin-timeout", "5"}),
            "accepted");
  const std::vector<const char*> kernels = {"kernels", "bench", "--model", "m.json"};
  const auto bench = [&](std::vector<const char*> more) {
    more.insert(more.begin(), kernels.begin(), kernels.end());
    return message_of(more);
  };
  EXPECT_THAT(bench({"--seed", "-1"}), HasSubstr("-1 is no whole number"));
  EXPECT_EQ(bench({"--seed", "18446744073709551615"}), "accepted");
  EXPECT_THAT(bench({"--exponent", "2"}), HasSubstr("--exponent: is of --routing zipf"));
  EXPECT_EQ(bench({"--exponent", "2", "--routing", "zipf"}), "accepted");
  EXPECT_THAT(bench({"--exponent", "nan", "--routing", "zipf"}), HasSubstr("no number"));
  EXPECT_THAT(bench({"--batch", "4,8,4"}), HasSubstr("--batch: 4 is listed twice"));
  EXPECT_THAT(message_of({"collectives", "bench", "--bytes", "4096,4096"}),
              HasSubstr("--bytes: 4096 is listed twice"));
  EXPECT_THAT(message_of({"collectives", "bench", "--algorithms", "ring,auto,ring"}),
              HasSubstr("--algorithms: ring is listed twice"));
  EXPECT_EQ(message_of({"collectives", "bench", "--bytes", "4096,8192"}), "accepted");
}

TEST(CommandLineTest, EveryVerbHasAHelpTextThatNamesItsFlagsAndNoOthers) {
  CLI::App app;
  CommandFlags flags;
  DeclareCommands(app, flags);
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  ASSERT_GE(verbs.size(), 15u);
  for (const CLI::App* verb : verbs) {
    const absl::string_view help = HelpText(verb->get_name());
    ASSERT_FALSE(help.empty()) << verb->get_name();
    EXPECT_THAT(std::string(help), testing::HasSubstr("usage: lastflop " + verb->get_name()));
    EXPECT_THAT(std::string(help), testing::HasSubstr("Exit codes")) << verb->get_name();
    std::set<std::string> declared;
    AddFlags(*verb, declared);
    EXPECT_EQ(FlagsIn(help), declared) << verb->get_name();
    EXPECT_THAT(std::string(HelpText("lastflop")), testing::HasSubstr("  " + verb->get_name()));
  }
}

TEST(CommandLineTest, HelpFitsATerminalOf120Columns) {
  CLI::App app;
  CommandFlags flags;
  DeclareCommands(app, flags);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    size_t column = 0;
    for (const char c : HelpText(verb->get_name())) {
      column = c == '\n' ? 0 : column + 1;
      ASSERT_LE(column, 120u) << verb->get_name();
    }
  }
}

}  // namespace
}  // namespace lastflop
