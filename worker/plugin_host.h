#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/plugin_files.h"
#include "plugin/lastflop_plugin.h"
#include "step/shapes.h"
#include "worker/plugin_functions.h"
#include "worker/plugin_watch.h"

namespace lastflop {

// Threads that a plugin may use on the CPU: calls fn(task, thread) for every task and returns when
// all are done.
using PluginParallelFor =
    std::function<void(int64_t num_tasks, absl::FunctionRef<void(int64_t task, int thread)> fn)>;

// A loaded plugin. A library stays loaded until the process ends.
struct Plugin {
  std::string name;   // Of "plugin:NAME".
  std::string title;  // As it calls itself.
  std::string fingerprint;
  std::shared_ptr<PluginFunctions> functions;
  const PluginWatch* watch = nullptr;  // Outlives this; may be null.
};

// The plugins of this process, which is a child: nothing here is called in a worker. Not
// thread-safe.
class PluginHost {
 public:
  // `watch` sees every call into a plugin; where it is unset, nobody does.
  PluginHost(PluginFiles files, std::optional<PluginWatch> watch)
      : files_(std::move(files)), watch_(std::move(watch)) {}

  // Loads the library, or starts Python where the file ends in ".py", when it is asked for first.
  // Unimplemented: this worker offers no such plugin, the file is gone, is no library, exports no
  // entry, is of another ABI version, or is no Python that can be imported. Internal: it is another
  // file than the worker has seen.
  absl::StatusOr<const Plugin*> Load(const std::string& name);

  // "plugin:NAME" of what is loaded: title and fingerprint.
  std::map<std::string, std::string> Environment() const;

 private:
  absl::StatusOr<Plugin> Open(const std::string& name, const PluginFile& file) const;
  absl::Status OpenLibrary(const std::string& path, Plugin& plugin) const;

  const PluginFiles files_;
  const std::optional<PluginWatch> watch_;
  std::map<std::string, Plugin> loaded_;
};

// A plugin made ready for one problem. Not thread-safe.
class PluginMoe {
 public:
  // What the plugin needs for a problem. Unimplemented: it cannot run the problem, with its reason.
  // InvalidArgument: it asks for what cannot be.
  static absl::StatusOr<lastflop_moe_needs> QueryNeeds(const Plugin& plugin,
                                                       const lastflop_moe_problem& problem);
  // Errors as QueryNeeds(), and Internal: what create() says.
  // `plugin` outlives this; `parallel_for` is null on CUDA.
  static absl::StatusOr<std::unique_ptr<PluginMoe>> Create(const Plugin& plugin,
                                                           const lastflop_moe_problem& problem,
                                                           PluginParallelFor parallel_for);
  ~PluginMoe();
  PluginMoe(const PluginMoe&) = delete;
  PluginMoe& operator=(const PluginMoe&) = delete;

  const Plugin& plugin() const { return plugin_; }
  // "plugin:fast is fast_moe 1.2, file 0123456789abcdef"
  std::string Describe() const;
  const lastflop_moe_problem& problem() const { return problem_; }
  const lastflop_moe_needs& needs() const { return needs_; }
  bool has_prepared() const { return needs_.prepared_bytes > 0; }

  // Errors: Internal, with what the plugin says.
  absl::Status Prepare(const lastflop_moe_weights& weights, void* prepared, void* stream);
  absl::Status Run(const lastflop_moe_call& call);

 private:
  PluginMoe(const Plugin& plugin, const lastflop_moe_problem& problem,
            PluginParallelFor parallel_for);

  const Plugin& plugin_;
  const lastflop_moe_problem problem_;
  const PluginParallelFor parallel_for_;
  lastflop_host host_{};
  lastflop_moe_needs needs_{};
  void* state_ = nullptr;
  const std::string in_run_;
};

// The problem that a plugin op stands for, device fields apart. Unimplemented for a format that
// plugins are not given.
absl::StatusOr<lastflop_moe_problem> PluginProblemOf(const FusedMoeShape& shape,
                                                     int64_t num_experts, int64_t first_expert);

}  // namespace lastflop
