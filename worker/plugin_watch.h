#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// Where a child process is in a plugin, for the worker that has to say so when the child is gone or
// does not come back: memory that both have. One call at a time; Current() from any process.
class PluginWatch {
 public:
  // In the worker. Its descriptor goes to the child.
  static absl::StatusOr<PluginWatch> Create();
  // In the child: the same memory, by its descriptor there.
  static absl::StatusOr<PluginWatch> Attach(int fd);

  int fd() const { return fd_ == nullptr ? -1 : *fd_; }

  // From construction to destruction this process is in `where` ("plugin:fast in run()").
  class Call {
   public:
    // `watch` may be null: nobody looks. It outlives this.
    Call(const PluginWatch* watch, absl::string_view where);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const PluginWatch* watch_;
  };

  struct Place {
    std::string where;  // "" outside of plugins.
    std::chrono::milliseconds since{0};
  };
  Place Current() const;

 private:
  struct Page;
  PluginWatch(std::shared_ptr<int> fd, std::shared_ptr<Page> page)
      : fd_(std::move(fd)), page_(std::move(page)) {}
  static absl::StatusOr<PluginWatch> Map(std::shared_ptr<int> fd);

  std::shared_ptr<int> fd_;  // Shared between copies, the last of which closes and unmaps.
  std::shared_ptr<Page> page_;
};

}  // namespace lastflop
