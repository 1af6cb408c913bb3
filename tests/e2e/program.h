#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace lastflop {

// A program of the build, run by an end-to-end test in a process group of its own. Killed when this
// is destroyed.
class Program {
 public:
  // `name` is one of the binaries ("lastflopd"), found in LASTFLOP_BIN_DIR. Its stdout and stderr
  // go to files in a folder of this test.
  Program(const std::string& folder, const std::string& name, std::vector<std::string> arguments);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Waits for the end: the exit code, or minus the signal's number. -1000 when it has not ended
  // within `timeout`: it is killed then.
  int Wait(std::chrono::seconds timeout = std::chrono::seconds(300));

  void Signal(int number) const;
  // To the program and what it started in its group, as a terminal does on Ctrl-C.
  void SignalGroup(int number) const;
  pid_t pid() const { return pid_; }
  std::string Out() const;
  std::string Err() const;

  // Polls until stderr contains `text` or the program ends or `timeout` is over.
  bool WaitForErr(const std::string& text,
                  std::chrono::seconds timeout = std::chrono::seconds(60)) const;

 private:
  std::string out_file_;
  std::string err_file_;
  pid_t pid_ = -1;
  bool is_reaped_ = false;
  int code_ = 0;
};

// Child processes of a process, from /proc; none of one that has ended.
std::vector<pid_t> ChildrenOf(pid_t parent);

// The name of the program that a process runs; "" of one that has ended.
std::string ProgramOf(pid_t process);

// A folder of this test, removed with its files at the end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace lastflop
