#include "worker/plugin_host.h"

#include <dlfcn.h>

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "worker/python_plugin.h"

namespace lastflop {
namespace {

constexpr size_t kReasonBytes = 1024;
constexpr char kEntry[] = "lastflop_plugin_entry";

std::string FieldOf(const std::string& name) { return absl::StrCat("moe.kernel=plugin:", name); }

// One call into a plugin, seen by the watch. `call` gets room for a reason and returns the plugin's
// answer; what it says is in the status when that is not 0.
absl::Status CallPlugin(const Plugin& plugin, absl::string_view where, absl::StatusCode failed,
                        absl::FunctionRef<int32_t(char* reason, size_t reason_bytes)> call) {
  char reason[kReasonBytes] = {};
  int32_t answer = 0;
  {
    const PluginWatch::Call watched(plugin.watch, where);
    // A plugin in C++ may throw what it should not.
    try {
      answer = call(reason, sizeof(reason));
    } catch (const std::exception& thrown) {
      return absl::InternalError(absl::StrCat(where, " threw ", thrown.what()));
    } catch (...) {
      return absl::InternalError(absl::StrCat(where, " threw an exception"));
    }
  }
  if (answer == 0) {
    return absl::OkStatus();
  }
  reason[kReasonBytes - 1] = '\0';
  for (char* c = reason; *c != '\0'; ++c) {
    *c = static_cast<unsigned char>(*c) < ' ' ? ' ' : *c;
  }
  return absl::Status(
      failed, absl::StrCat(FieldOf(plugin.name), ": ",
                           reason[0] != '\0'
                               ? std::string(reason)
                               : absl::StrCat(where, " returned ", answer, " and no reason")));
}

void ParallelForOfHost(const lastflop_host* host, int64_t num_tasks,
                       void (*task)(void* context, int64_t index, int32_t thread), void* context) {
  const auto& parallel_for = *static_cast<const PluginParallelFor*>(host->reserved);
  parallel_for(num_tasks, [&](int64_t index, int thread) { task(context, index, thread); });
}

absl::Status CheckNeeds(const Plugin& plugin, const lastflop_moe_needs& needs) {
  if (needs.workspace_bytes < 0 || needs.prepared_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(FieldOf(plugin.name), ": it asks for ", needs.workspace_bytes,
                     " bytes of workspace and ", needs.prepared_bytes, " of weights"));
  }
  if (needs.prepared_bytes > 0 && !plugin.functions->has_prepare()) {
    return absl::UnimplementedError(absl::StrCat(
        FieldOf(plugin.name), ": it asks for weights of its own and has no prepare()"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> FormatOf(const WeightStorage& storage) {
  switch (storage.format) {
    case WeightFormat::kBf16:
      return LASTFLOP_WEIGHTS_BF16;
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      return LASTFLOP_WEIGHTS_INT4;
    case WeightFormat::kFp8Block:
      return LASTFLOP_WEIGHTS_FP8_BLOCK;
    case WeightFormat::kNvfp4:
      return LASTFLOP_WEIGHTS_NVFP4;
    case WeightFormat::kMxfp4:
      return LASTFLOP_WEIGHTS_MXFP4;
    default:
      return absl::UnimplementedError(
          absl::StrCat("moe.weights=", ToWord(storage.format),
                       ": plugins are given bf16, int4, fp8_block, nvfp4 and mxfp4"));
  }
}

}  // namespace

absl::StatusOr<const Plugin*> PluginHost::Load(const std::string& name) {
  if (const auto found = loaded_.find(name); found != loaded_.end()) {
    return &found->second;
  }
  const auto file = files_.find(name);
  if (file == files_.end()) {
    return absl::UnimplementedError(absl::StrCat(
        FieldOf(name), ": this worker offers no such plugin; --plugin ", name, "=FILE does"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(Plugin plugin, Open(name, file->second));
  return &loaded_.emplace(name, std::move(plugin)).first->second;
}

absl::StatusOr<Plugin> PluginHost::Open(const std::string& name, const PluginFile& file) const {
  const auto refuse = [&name](const std::string& why) {
    return absl::UnimplementedError(absl::StrCat(FieldOf(name), ": ", why));
  };
  const absl::StatusOr<std::string> fingerprint = FingerprintOfFile(file.path);
  if (!fingerprint.ok()) {
    return refuse(std::string(fingerprint.status().message()));
  }
  if (*fingerprint != file.fingerprint) {
    return absl::InternalError(absl::StrCat(
        FieldOf(name), ": ", file.path, " has changed since the worker started: it was ",
        file.fingerprint, " and is ", *fingerprint, "; results of the two must not mix"));
  }
  Plugin plugin{
      .name = name, .fingerprint = *fingerprint, .watch = watch_.has_value() ? &*watch_ : nullptr};
  if (absl::EndsWith(file.path, ".py")) {
    // What the file does when it is imported runs in it.
    const PluginWatch::Call watched(plugin.watch, absl::StrCat("plugin:", name, " in import"));
    absl::StatusOr<std::shared_ptr<PythonPlugin>> python = PythonPlugin::Start(file.path);
    if (!python.ok()) {
      return refuse(std::string(python.status().message()));
    }
    plugin.functions = *std::move(python);
  } else if (const absl::Status opened = OpenLibrary(file.path, plugin); !opened.ok()) {
    return refuse(std::string(opened.message()));
  }
  plugin.title = plugin.functions->title();
  return plugin;
}

absl::Status PluginHost::OpenLibrary(const std::string& path, Plugin& plugin) const {
  // The library's constructors run in it.
  const PluginWatch::Call watched(plugin.watch,
                                  absl::StrCat("plugin:", plugin.name, " in dlopen()"));
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    return absl::UnimplementedError(error == nullptr ? absl::StrCat(path, ": dlopen() fails")
                                                     : std::string(error));
  }
  auto* const entry = reinterpret_cast<const lastflop_plugin* (*)()>(dlsym(library, kEntry));
  if (entry == nullptr) {
    return absl::UnimplementedError(absl::StrCat(path, " does not export ", kEntry, "()"));
  }
  const lastflop_plugin* const table = entry();
  if (table == nullptr) {
    return absl::UnimplementedError(absl::StrCat(kEntry, "() returns nothing"));
  }
  if (table->abi_version != LASTFLOP_PLUGIN_ABI_VERSION) {
    return absl::UnimplementedError(absl::StrCat("it is of ABI version ", table->abi_version,
                                                 " and this lastflop loads version ",
                                                 LASTFLOP_PLUGIN_ABI_VERSION));
  }
  if (table->query == nullptr || table->run == nullptr) {
    return absl::UnimplementedError("its table has no query() or no run()");
  }
  plugin.functions = std::make_shared<NativePluginFunctions>(*table, plugin.name);
  return absl::OkStatus();
}

std::map<std::string, std::string> PluginHost::Environment() const {
  std::map<std::string, std::string> environment;
  for (const auto& [name, plugin] : loaded_) {
    environment[absl::StrCat("plugin:", name)] =
        absl::StrCat(plugin.title, ", file ", plugin.fingerprint);
  }
  return environment;
}

PluginMoe::PluginMoe(const Plugin& plugin, const lastflop_moe_problem& problem,
                     PluginParallelFor parallel_for)
    : plugin_(plugin),
      problem_(problem),
      parallel_for_(std::move(parallel_for)),
      in_run_(absl::StrCat("plugin:", plugin.name, " in run()")) {
  if (parallel_for_ != nullptr) {
    host_.parallel_for = &ParallelForOfHost;
    host_.reserved = const_cast<PluginParallelFor*>(&parallel_for_);
  }
}

absl::StatusOr<lastflop_moe_needs> PluginMoe::QueryNeeds(const Plugin& plugin,
                                                         const lastflop_moe_problem& problem) {
  lastflop_moe_needs needs{};
  LASTFLOP_RETURN_IF_ERROR(
      CallPlugin(plugin, absl::StrCat("plugin:", plugin.name, " in query()"),
                 absl::StatusCode::kUnimplemented, [&](char* reason, size_t reason_bytes) {
                   return plugin.functions->Query(problem, needs, reason, reason_bytes);
                 }));
  LASTFLOP_RETURN_IF_ERROR(CheckNeeds(plugin, needs));
  return needs;
}

absl::StatusOr<std::unique_ptr<PluginMoe>> PluginMoe::Create(const Plugin& plugin,
                                                             const lastflop_moe_problem& problem,
                                                             PluginParallelFor parallel_for) {
  std::unique_ptr<PluginMoe> made(new PluginMoe(plugin, problem, std::move(parallel_for)));
  LASTFLOP_ASSIGN_OR_RETURN(made->needs_, QueryNeeds(plugin, problem));
  LASTFLOP_RETURN_IF_ERROR(CallPlugin(
      plugin, absl::StrCat("plugin:", plugin.name, " in create()"), absl::StatusCode::kInternal,
      [&](char* reason, size_t reason_bytes) {
        return plugin.functions->Create(made->problem_, made->state_, reason, reason_bytes);
      }));
  return made;
}

PluginMoe::~PluginMoe() {
  CallPlugin(plugin_, absl::StrCat("plugin:", plugin_.name, " in destroy()"),
             absl::StatusCode::kInternal,
             [this](char* /*reason*/, size_t /*reason_bytes*/) {
               plugin_.functions->Destroy(state_);
               return 0;
             })
      .IgnoreError();  // What it held is lost; nothing is measured any more.
}

std::string PluginMoe::Describe() const {
  return absl::StrCat("plugin:", plugin_.name, " is ", plugin_.title, ", file ",
                      plugin_.fingerprint);
}

absl::Status PluginMoe::Prepare(const lastflop_moe_weights& weights, void* prepared, void* stream) {
  return CallPlugin(plugin_, absl::StrCat("plugin:", plugin_.name, " in prepare()"),
                    absl::StatusCode::kInternal, [&](char* reason, size_t reason_bytes) {
                      return plugin_.functions->Prepare(state_, host_, weights, prepared, stream,
                                                        reason, reason_bytes);
                    });
}

absl::Status PluginMoe::Run(const lastflop_moe_call& call) {
  return CallPlugin(plugin_, in_run_, absl::StatusCode::kInternal,
                    [&](char* reason, size_t reason_bytes) {
                      return plugin_.functions->Run(state_, host_, call, reason, reason_bytes);
                    });
}

absl::StatusOr<lastflop_moe_problem> PluginProblemOf(const FusedMoeShape& shape,
                                                     int64_t num_experts, int64_t first_expert) {
  LASTFLOP_ASSIGN_OR_RETURN(const int32_t format, FormatOf(shape.storage));
  const WeightStorage usual = StorageOf(shape.storage.format);
  lastflop_moe_problem problem{};
  problem.max_tokens = shape.num_tokens;
  problem.top_k = shape.top_k;
  problem.num_experts = num_experts;
  problem.first_expert = first_expert;
  problem.num_local_experts = shape.num_local_experts;
  problem.hidden_size = shape.hidden_size;
  problem.intermediate_size = shape.moe_intermediate_size;
  problem.weight_format = format;
  problem.has_shared = shape.add_shared ? 1 : 0;
  problem.group_size = shape.storage.group_size > 0 ? shape.storage.group_size : usual.group_size;
  problem.block_rows = shape.storage.block_rows > 0 ? shape.storage.block_rows : usual.block_rows;
  return problem;
}

}  // namespace lastflop
