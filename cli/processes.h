#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// A started program. Ended (SIGTERM, then SIGKILL after a grace) when this is destroyed; it also
// dies with this process, by its own --parent flag. It has a process group of its own: Ctrl-C at a
// terminal reaches this process alone, which then ends what it started in order.
class ChildProgram {
 public:
  // stdout and stderr go to `log_file` (appended), or stay this process' when it is "".
  static absl::StatusOr<std::unique_ptr<ChildProgram>> Start(
      const std::vector<std::string>& arguments, const std::string& log_file);
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  // False once it has ended; then exit_text() says how.
  bool IsRunning();
  const std::string& exit_text() const { return exit_text_; }
  // As common/exit_codes.h; -1 when a signal ended it.
  int exit_code() const { return exit_code_; }
  void Terminate();

 private:
  explicit ChildProgram(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  bool is_running_ = true;
  std::string exit_text_;
  int exit_code_ = -1;
};

// Runs a program to its end and gives what it wrote to stdout; its stderr is this process'.
// An error as its exit code says when it fails, with how.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments);

}  // namespace lastflop
