#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/one_line.h"
#include "common/suggest.h"
#include "common/words.h"
#include "planner/ranking.h"
#include "report/render.h"

namespace lastflop {
namespace {

template <typename E>
std::vector<std::string> WordsOf() {
  std::vector<std::string> words;
  for (const auto& [value, word] : EnumWords<E>::kWords) {
    words.emplace_back(word);
  }
  return words;
}

// CLI::Range compares, and nothing compares with what is not a number.
const CLI::Validator& IsNumber() {
  static const CLI::Validator validator(
      [](std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && std::isfinite(value)
                   ? std::string()
                   : absl::StrCat(text, " is no number");
      },
      "");
  return validator;
}

// CLI11 reads "-1" into an unsigned value as the largest there is.
const CLI::Validator& IsSeed() {
  static const CLI::Validator validator(
      [](std::string& text) {
        uint64_t value = 0;
        return absl::SimpleAtoi(text, &value) ? std::string()
                                              : absl::StrCat(text, " is no whole number from 0 on");
      },
      "");
  return validator;
}

// A value that is listed twice would be measured twice.
template <typename T>
void RefuseRepeated(const char* flag, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) {
    throw CLI::ValidationError(flag, absl::StrCat(*twice, " is listed twice"));
  }
}

// Without --fidelity: what a preview has.
void AddFile(CLI::App& verb, CampaignFlags& flags) {
  verb.add_option("FILE", flags.file)->required();
  verb.add_option("--set", flags.overrides)->allow_extra_args(false);
  verb.add_flag("--no-prune", flags.no_prune);
}

void AddCampaign(CLI::App& verb, CampaignFlags& flags) {
  AddFile(verb, flags);
  verb.add_option("--fidelity", flags.fidelity)->check(CLI::IsMember(WordsOf<Fidelity>()));
}

void AddPlugins(CLI::App& verb, PluginFlags& flags) {
  verb.add_option("--plugin", flags.files)->allow_extra_args(false);
  verb.add_option("--plugin-timeout", flags.timeout_s)
      ->check(IsNumber())
      ->check(CLI::Range(0.1, 86400.0))
      ->needs("--plugin");
}

void AddServer(CLI::App& verb, SourceFlags& flags) {
  verb.add_option("--token-file", flags.token_file)->envname("LASTFLOP_TOKEN_FILE");
  verb.add_option("--tls-ca", flags.tls_ca_file)->envname("LASTFLOP_TLS_CA");
  verb.add_option("--tls-server-name", flags.tls_server_name);
}

void AddRequiredServer(CLI::App& verb, SourceFlags& flags) {
  verb.add_option("--server", flags.server)->envname("LASTFLOP_SERVER")->required();
  AddServer(verb, flags);
}

// Whether a flag that is there excludes `option`.
bool IsRuledOut(const CLI::App& verb, CLI::Option* option) {
  const std::vector<const CLI::Option*> given =
      verb.get_options([](const CLI::Option* other) { return other->count() > 0; });
  return std::any_of(given.begin(), given.end(), [option](const CLI::Option* other) {
    return other->get_excludes().count(option) > 0;
  });
}

// A coordinator or a database: exactly one, since they can disagree. A flag that rules --server out
// wins over the environment's LASTFLOP_SERVER, which only stands in for a flag that is not there;
// where neither names a source it is the database of a `run` in this folder, if there is one.
void AddSource(CLI::App& verb, SourceFlags& flags) {
  CLI::Option* server = verb.add_option("--server", flags.server);
  AddServer(verb, flags);
  CLI::Option* db = verb.add_option("--db", flags.db)->excludes("--server");
  verb.parse_complete_callback([&verb, &flags, server, db] {
    const char* address = std::getenv("LASTFLOP_SERVER");
    if (flags.server.empty() && !IsRuledOut(verb, server) && address != nullptr) {
      flags.server = address;
    }
    std::error_code unreadable;
    if (flags.server.empty() && db->count() == 0 && !IsRuledOut(verb, db) &&
        std::filesystem::exists(kDefaultDatabase, unreadable)) {
      flags.db = kDefaultDatabase;
    }
  });
}

void AddFormat(CLI::App& verb, std::string& format, const std::vector<std::string>& formats) {
  verb.add_option("-o,--output", format)->check(CLI::IsMember(formats));
}

void AddReport(CLI::App& verb, std::string& format, std::string& by) {
  AddFormat(verb, format, WordsOf<ReportFormat>());
  verb.add_option("--by", by)->check(CLI::IsMember(WordsOf<RankingOrder>()));
}

const std::vector<std::string>& RowFormats() {
  static const std::vector<std::string> formats = {"table", "json", "csv", "md"};
  return formats;
}

void AddBench(CLI::App& kernels, KernelBenchFlags& flags) {
  CLI::App* bench = kernels.add_subcommand("bench");
  bench->set_help_flag();
  bench->add_option("--model", flags.model_file)->required();
  bench->add_option("--tensor", flags.tensor)->check(CLI::Range(1, 4096));
  bench->add_option("--expert", flags.expert)->check(CLI::Range(1, 4096));
  bench->add_option("--rank", flags.rank)->check(CLI::IsMember({"mean", "max"}));
  bench->add_option("--weights", flags.weights)->check(CLI::IsMember(WordsOf<WeightFormat>()));
  bench->add_option("--batch", flags.batches)->delimiter(',')->check(CLI::Range(1, 1 << 20));
  bench->add_option("--routing", flags.routing)
      ->check(CLI::IsMember({"uniform", "balanced", "zipf", "all_to_one"}));
  const CLI::Option* exponent = bench->add_option("--exponent", flags.exponent)
                                    ->check(IsNumber())
                                    ->check(CLI::NonNegativeNumber);
  bench->add_option("--seed", flags.seed)->check(IsSeed());
  bench->add_option("--samples", flags.samples)->check(CLI::Range(1, 100000));
  bench->add_option("--device", flags.device);
  AddFormat(*bench, flags.format, RowFormats());
  bench->parse_complete_callback([&flags, exponent] {
    if (exponent->count() > 0 && flags.routing != "zipf") {
      throw CLI::ValidationError("--exponent", "is of --routing zipf");
    }
    RefuseRepeated("--batch", flags.batches);
  });
}

}  // namespace

void DeclareCommands(CLI::App& app, CommandFlags& flags) {
  app.set_help_flag();  // cli/help/*.txt answer --help.
  app.require_subcommand(1);
  const auto verb = [&](const char* name) {
    CLI::App* sub = app.add_subcommand(name);
    sub->set_help_flag();
    return sub;
  };
  CLI::App* run = verb("run");
  AddCampaign(*run, flags.run.campaign);
  run->add_option("--db", flags.run.db);
  run->add_option("--workers", flags.run.workers)->check(CLI::Range(1, 4096));
  AddPlugins(*run, flags.run.plugins);
  run->add_flag("-v,--verbose", flags.run.verbose);
  run->final_callback([run, &flags] {
    for (const char* flag : {"--db", "--workers", "--plugin", "--plugin-timeout", "--verbose"}) {
      if (run->count(flag) > 0) {
        flags.run.measuring.emplace_back(flag);
      }
    }
  });
  AddReport(*run, flags.run.format, flags.run.by);
  CLI::App* preview = verb("preview");
  AddFile(*preview, flags.preview.campaign);
  preview->add_option("--calibration", flags.preview.calibration)->allow_extra_args(false);
  preview->add_flag("--warm", flags.preview.warm);
  AddReport(*preview, flags.preview.format, flags.preview.by);
  CLI::App* submit = verb("submit");
  AddCampaign(*submit, flags.submit.campaign);
  AddRequiredServer(*submit, flags.submit.source);
  submit->add_option("--submission-id", flags.submit.submission_id);
  submit->add_flag("--watch", flags.submit.watch);
  AddCampaign(*verb("validate"), flags.validate);
  CLI::App* list = verb("list");
  AddSource(*list, flags.list.source);
  AddFormat(*list, flags.list.format, RowFormats());
  CLI::App* show = verb("show");
  show->add_option("ID", flags.show.id);
  AddSource(*show, flags.show.source);
  AddFormat(*show, flags.show.format, RowFormats());
  CLI::App* watch = verb("watch");
  watch->add_option("ID", flags.watch.id)->required();
  AddRequiredServer(*watch, flags.watch.source);
  watch->add_option("--after", flags.watch.after_sequence)->check(CLI::NonNegativeNumber);
  CLI::App* cancel = verb("cancel");
  cancel->add_option("ID", flags.cancel.id)->required();
  AddRequiredServer(*cancel, flags.cancel.source);
  CLI::App* resume = verb("resume");
  resume->add_option("ID", flags.resume.id);
  AddSource(*resume, flags.resume.source);
  AddPlugins(*resume, flags.resume.plugins);
  // Workers of a coordinator have plugins of their own.
  resume->get_option("--plugin")->excludes("--server");
  resume->get_option("--plugin-timeout")->excludes("--server");
  resume->add_flag("-v,--verbose", flags.resume.verbose);
  AddReport(*resume, flags.resume.format, flags.resume.by);
  CLI::App* report = verb("report");
  report->add_option("ID", flags.report.id);
  AddSource(*report, flags.report.source);
  report->add_option("--out", flags.report.out);
  AddReport(*report, flags.report.format, flags.report.by);
  CLI::App* explain = verb("explain");
  explain->add_option("ID", flags.explain.id)->required();
  explain->add_option("--campaign", flags.explain.campaign);
  AddSource(*explain, flags.explain.source);
  AddFormat(*explain, flags.explain.format, RowFormats());
  explain->add_option("--by", flags.explain.by)->check(CLI::IsMember(WordsOf<RankingOrder>()));
  CLI::App* compare = verb("compare");
  compare->add_option("A", flags.compare.a)->required();
  compare->add_option("B", flags.compare.b)->required();
  AddSource(*compare, flags.compare.source);
  AddFormat(*compare, flags.compare.format, RowFormats());
  CLI::App* exported = verb("export");
  exported->add_option("ID", flags.exported.id);
  AddSource(*exported, flags.exported.source);
  exported->add_option("--out", flags.exported.out);
  CLI::App* workers = verb("workers");
  AddSource(*workers, flags.workers.source);
  AddFormat(*workers, flags.workers.format, RowFormats());
  CLI::App* logs = verb("logs");
  logs->add_option("SOURCE", flags.logs.of);
  AddSource(*logs, flags.logs.source);
  logs->add_flag("-f,--follow", flags.logs.follow)->excludes("--db");
  CLI::App* model = verb("model");
  model->add_option("FILE", flags.model.file)->required();
  AddFormat(*model, flags.model.format, {"table", "json"});
  CLI::App* predict = verb("predict");
  predict->add_option("--rows", flags.predict.rows)->required();
  auto* calibration =
      predict->add_option("--calibration", flags.predict.calibration)->allow_extra_args(false);
  predict->add_option("--map", flags.predict.column_map)->allow_extra_args(false);
  predict->add_option("--held-out", flags.predict.held_out)->excludes(calibration);
  predict->add_flag("--warm", flags.predict.warm);
  AddFormat(*predict, flags.predict.format, RowFormats());
  CLI::App* imported = verb("import");
  imported->add_option("FILE", flags.imported.file)->required();
  imported->add_option("--into", flags.imported.into);
  imported->add_option("--origin", flags.imported.origin);
  imported->add_option("--map", flags.imported.column_map)->allow_extra_args(false);
  imported->add_flag("--warm", flags.imported.warm);
  CLI::App* calibrate = verb("calibrate");
  calibrate->add_option("--device", flags.calibrate.device);
  calibrate->add_option("--ranks", flags.calibrate.ranks)->check(CLI::Range(1, 64));
  calibrate->add_option("--name", flags.calibrate.name);
  calibrate->add_option("--out", flags.calibrate.out);
  calibrate->add_flag("--force", flags.calibrate.force);
  CLI::App* kernels = verb("kernels");
  AddFormat(*kernels, flags.kernels.format, RowFormats());
  AddBench(*kernels, flags.bench);
  CLI::App* bench = verb("collectives")->add_subcommand("bench");
  bench->set_help_flag();
  app.get_subcommand("collectives")->require_subcommand(1);
  bench->add_option("--device", flags.collectives.device)->check(CLI::IsMember({"cpu", "cuda"}));
  bench->add_option("--ranks", flags.collectives.ranks)->check(CLI::Range(2, 64));
  bench->add_option("--bytes", flags.collectives.bytes)
      ->delimiter(',')
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
  bench->add_option("--algorithms", flags.collectives.algorithms)
      ->delimiter(',')
      ->check(CLI::IsMember(WordsOf<AllReduceAlgorithm>()) |
              CLI::IsMember(WordsOf<AllToAllAlgorithm>()));
  bench->add_option("--operations", flags.collectives.operations)
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "all_reduce_norm", "all_to_all"}));
  AddFormat(*bench, flags.collectives.format, RowFormats());
  bench->parse_complete_callback([&flags] {
    RefuseRepeated("--bytes", flags.collectives.bytes);
    RefuseRepeated("--algorithms", flags.collectives.algorithms);
    RefuseRepeated("--operations", flags.collectives.operations);
  });
  AddFormat(*verb("doctor"), flags.doctor.format, RowFormats());
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app{"lastflop"};
  CommandLine line;
  DeclareCommands(app, line.flags);
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(verb->get_name());
  }
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() ||
      (first.front() != '-' && std::find(verbs.begin(), verbs.end(), first) == verbs.end())) {
    return absl::InvalidArgumentError(absl::StrCat("no verb '", OneLine(first), "'",
                                                   DidYouMean(first, {verbs.begin(), verbs.end()}),
                                                   "; `lastflop --help` lists them"));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "\nsee `lastflop --help`"));
  }
  const CLI::App& chosen = *app.get_subcommands().front();
  line.verb = chosen.get_name();
  if (!chosen.get_subcommands().empty()) {
    line.sub_verb = chosen.get_subcommands().front()->get_name();
  }
  return line;
}

}  // namespace lastflop
