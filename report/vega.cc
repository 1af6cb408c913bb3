#include "report/vega.h"

#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lastflop {
namespace {

// The modules that a chart needs, each after those that it requires: file stem and the name that
// others require it by.
struct Module {
  const char* file;
  const char* name;
};
constexpr Module kModules[] = {{"vega-util", "vega-util"},
                               {"vega-time", "vega-time"},
                               {"vega-format", "vega-format"},
                               {"vega-loader", "vega-loader"},
                               {"vega-dataflow", "vega-dataflow"},
                               {"vega-statistics", "vega-statistics"},
                               {"vega-transforms", "vega-transforms"},
                               {"vega-canvas", "vega-canvas"},
                               {"vega-scale", "vega-scale"},
                               {"vega-scenegraph", "vega-scenegraph"},
                               {"vega-view-transforms", "vega-view-transforms"},
                               {"vega-encode", "vega-encode"},
                               {"vega-expression", "vega-expression"},
                               {"vega-selection", "vega-selections"},
                               {"vega-functions", "vega-functions"},
                               {"vega-event-selector", "vega-event-selector"},
                               {"vega-runtime", "vega-runtime"},
                               {"vega-parser", "vega-parser"},
                               {"vega-view", "vega-view"}};

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return file.bad() ? std::nullopt : std::optional(text.str());
}

// The modules are built for a CommonJS loader; this is the smallest one. `vega` gets what a page
// uses, and the transforms of a chart are registered with the dataflow as vega's own index does.
std::optional<std::string> Assemble(const std::string& directory) {
  std::string script = "var vega=(function(){var loaded={};\n";
  for (const Module& module : kModules) {
    const std::optional<std::string> text =
        ReadFile(absl::StrCat(directory, "/", module.file, ".min.js"));
    if (!text.has_value()) {
      return std::nullopt;
    }
    absl::StrAppend(&script, "(function(){var module={exports:{}},exports=module.exports,",
                    "require=function(name){return loaded[name];};\n", *text, "\nloaded[\"",
                    module.name, "\"]=module.exports;}).call(window);\n");
  }
  absl::StrAppend(&script, "var flow=loaded[\"vega-dataflow\"];",
                  "[\"vega-transforms\",\"vega-view-transforms\",\"vega-encode\"]",
                  ".forEach(function(name){Object.assign(flow.transforms,loaded[name]);});",
                  "return {parse:loaded[\"vega-parser\"].parse,View:loaded[\"vega-view\"].View};",
                  "})();\n");
  return script;
}

// No text of a script may end its element or start a comment in it.
std::string ForScriptElement(std::string script) {
  return absl::StrReplaceAll(
      script, {{"</script", "<\\/script"}, {"</SCRIPT", "<\\/SCRIPT"}, {"<!--", "<\\!--"}});
}

}  // namespace

std::string ReadVega(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    std::optional<std::string> script = ReadFile(absl::StrCat(directory, "/vega.min.js"));
    if (!script.has_value()) {
      script = Assemble(directory);
    }
    if (script.has_value()) {
      return ForScriptElement(*std::move(script));
    }
  }
  return "";
}

std::vector<std::string> VegaDirectories(const std::string& share_directory) {
  return {absl::StrCat(share_directory, "/vega"), "/usr/share/javascript/vega"};
}

}  // namespace lastflop
