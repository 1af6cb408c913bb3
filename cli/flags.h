#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/words.h"
#include "report/render.h"

// What the command line says, parsed. Filled by cli/main.cc alone.
namespace lastflop {

// Where `run` keeps its results and the reading verbs look for them, unless told otherwise: in the
// folder they are called in.
inline constexpr char kDefaultDatabase[] = "lastflop.db";

// Where results are: a coordinator, or a database file that none has open. Both "": nothing was
// named, and there is no kDefaultDatabase here.
struct SourceFlags {
  std::string server;
  std::string db;
  std::string token_file;
  std::string tls_ca_file;
  std::string tls_server_name;
};

// What moe.kernel=plugin:NAME stands for on the workers that are started here.
struct PluginFlags {
  std::vector<std::string> files;  // NAME=FILE each.
  double timeout_s = 60;           // Of a call.
};

struct CampaignFlags {
  std::string file;
  std::vector<std::string> overrides;  // --set path=value
  std::string fidelity;                // "" or a word of Fidelity.
  bool no_prune = false;               // As --set measure.prune=false.
};

struct RunFlags {
  CampaignFlags campaign;
  std::string db = kDefaultDatabase;
  int workers = 0;  // 0: as many as the largest plan has ranks.
  PluginFlags plugins;
  std::string format = "table";
  std::string by = "net_gain";
  bool verbose = false;
  // Of the flags that only measuring has a use for, those that the command line has.
  std::vector<std::string> measuring;
};

struct PreviewFlags {
  CampaignFlags campaign;
  std::vector<std::string> calibration;  // Files; empty: the default one, if it is there.
  bool warm = false;                     // Of their rows that do not say.
  std::string format = "table";
  std::string by = "net_gain";
};

struct SubmitFlags {
  CampaignFlags campaign;
  SourceFlags source;
  std::string submission_id;
  bool watch = false;
};

struct IdFlags {
  SourceFlags source;
  std::string id;  // Campaign id, unique prefix, or name.
  std::string format = "table";
  std::string by = "net_gain";
  std::string out;  // report and export: a file or a folder; "" is stdout.
  int64_t after_sequence = 0;
  PluginFlags plugins;  // resume, where it starts the workers.
  bool verbose = false;
};

struct ExplainFlags {
  SourceFlags source;
  std::string id;        // Of the intervention.
  std::string campaign;  // As IdFlags::id.
  std::string format = "table";
  std::string by = "net_gain";
};

struct CompareFlags {
  SourceFlags source;
  std::string a;  // FILE.json, FILE.db, FILE.db:ID, or as IdFlags::id.
  std::string b;
  std::string format = "table";
};

struct ListFlags {
  SourceFlags source;
  std::string format = "table";
};

struct LogsFlags {
  SourceFlags source;
  std::string of;  // Worker id, "coordinator" or "" for all.
  bool follow = false;
};

struct ModelFlags {
  std::string file;
  std::string format = "table";
};

struct PredictFlags {
  std::string rows;
  std::vector<std::string> calibration;  // Files; empty: the default one, if it is there.
  std::vector<std::string> column_map;   // theirs=ours
  std::string held_out;                  // "" or COLUMN[=VALUE]
  bool warm = false;
  std::string format = "table";
};

struct ImportFlags {
  std::string file;
  std::string into;    // "": the default calibration file.
  std::string origin;  // "": the file's name.
  std::vector<std::string> column_map;
  bool warm = false;
};

struct CollectivesFlags {
  std::string device;                   // cpu or cuda; "": cuda where this build sees two GPUs.
  int ranks = 0;                        // 0: every GPU up to 8; 2 on the CPU.
  std::vector<int64_t> bytes;           // Empty: the device's own list.
  std::vector<std::string> algorithms;  // Empty: all that the device has.
  std::vector<std::string> operations;  // Empty: all.
  std::string format = "table";
};

struct CalibrateFlags {
  std::string device;  // "": the first GPU, or the CPU.
  int ranks = 0;       // Of the all-reduces. 0: every GPU up to 8; 2 on the CPU. 1: none.
  std::string name;    // "": after the device.
  std::string out;     // A file or a folder; "" is stdout.
  bool force = false;  // Replace a file that is there.
};

struct HostFlags {
  std::string format = "table";
};

struct KernelBenchFlags {
  std::string model_file;
  int64_t tensor = 1;
  int64_t expert = 1;
  std::string rank = "mean";  // mean or max: whose share of the routing.
  std::string weights;        // "" or a word of WeightFormat: as the model stores them.
  std::vector<int64_t> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  std::string routing = "uniform";
  double exponent = 1.0;
  uint64_t seed = 1;
  int64_t samples = 20;
  std::string device;  // "": the first GPU, or the CPU.
  std::string format = "table";
};

}  // namespace lastflop
