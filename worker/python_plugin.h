#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/plugin_functions.h"

namespace lastflop {

// What runs in the process: worker/python_plugin_host.py.
extern const char kPythonPluginHost[];

// A plugin in Python, on the CPU: a process of its own, which this one tells when to work over a
// socket. Weights of a layer are copied once, untimed, to memory that both processes have; inputs
// and output of a call lie in such memory too, so that a call also takes the time of two copies, of
// poisoning the output, and of waking a process twice. Not thread-safe.
class PythonPlugin final : public PluginFunctions {
 public:
  // Imports `file` with $LASTFLOP_PYTHON, or python3. Unimplemented: there is no such program, the
  // file cannot be imported, or has no run().
  static absl::StatusOr<std::shared_ptr<PythonPlugin>> Start(const std::string& file);
  ~PythonPlugin() override;
  PythonPlugin(const PythonPlugin&) = delete;
  PythonPlugin& operator=(const PythonPlugin&) = delete;

  std::string title() const override { return title_; }
  bool has_prepare() const override { return true; }
  bool takes_device_memory() const override { return false; }
  int32_t Query(const lastflop_moe_problem& problem, lastflop_moe_needs& needs, char* reason,
                size_t reason_bytes) override;
  int32_t Create(const lastflop_moe_problem& problem, void*& state, char* reason,
                 size_t reason_bytes) override;
  void Destroy(void* state) override;
  int32_t Prepare(void* state, const lastflop_host& host, const lastflop_moe_weights& weights,
                  void* prepared, void* stream, char* reason, size_t reason_bytes) override;
  int32_t Run(void* state, const lastflop_host& host, const lastflop_moe_call& call, char* reason,
              size_t reason_bytes) override;

  pid_t pid() const { return pid_; }

 private:
  struct Segment;
  struct Made;

  PythonPlugin(pid_t pid, int socket) : pid_(pid), socket_(socket) {}

  // A request and its reply, a line each. Internal: the process is gone, and how it ended.
  absl::StatusOr<std::string> Ask(const std::string& request);
  std::string DescribeEnd();
  // 0 for a reply that is "ok"; else 1, with what the plugin says in `reason`.
  int32_t Demand(const std::string& request, char* reason, size_t reason_bytes,
                 std::string* reply = nullptr);

  const pid_t pid_;
  const int socket_;
  std::string title_;
  std::string unread_;      // Of the socket.
  std::string end_;         // How the process ended; "" while it runs.
  int64_t next_id_ = 0;     // Of what Create() makes.
  int64_t num_layers_ = 0;  // Whose weights the process has.
};

}  // namespace lastflop
